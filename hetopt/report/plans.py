"""A training plan as a picture: one row a pipeline, one box a stage, width by time."""

from collections.abc import Iterable
from colorsys import hls_to_rgb
from fractions import Fraction
from string import ascii_uppercase

from ..plans import Stage
from ..problems.training_plan.shapes import split_of
from ..result import Result
from ..schema import Cluster
from . import words
from .figures import WIDTH, Axes, Drawing, Look, canvas, label, legend_columns
from .sheet import Figure

_LETTER = 0.075  # of a letter in a box: inches
_MARGIN = 1  # letters that a box is wider than its words
_BESIDE = 1.4  # of what stands beside the boxes: inches
ROW = 0.32  # of a pipeline: inches
_PALETTE = (
    *("#8ecae6", "#f4a261", "#95d5b2", "#e5989b"),
    *("#cdb4ff", "#ffd166", "#a3b18a", "#d4a373"),
)
NOTE = (
    "One row per pipeline, and one box per stage with its layers and GPUs; the darker "
    "end of a box is the transfer to the next stage. Left: micro-batches × size. "
    "Right: the pipeline's time. The axis is the time of one micro-batch."
)


def colours(types: Iterable[str]) -> dict[str, str]:
    """A colour for each GPU type, the same for the same set of types."""
    return {gpu: _colour(i) for i, gpu in enumerate(sorted(set(types)))}


def figure(result: Result, title: str, palette: dict[str, str] | None = None) -> Figure:
    """The drawing of a plan; `palette` has at least its types of GPU."""
    assert result.plan is not None
    stages = sum(len(one.stages) for one in result.plan.pipelines)
    shades = palette or colours(result.data.planned_cluster.gpus)
    return Figure(
        title,
        "",
        lambda: drawing(result, shades),
        f"{words.counted(len(result.plan.pipelines), 'pipeline')} of {stages} stages "
        "in all; the table of stages has the numbers.",
    )


def drawing(result: Result, palette: dict[str, str]) -> Drawing:
    """The Matplotlib figure of a training plan; `palette` has its types of GPU."""
    assert result.plan is not None
    figure = canvas(WIDTH, 0.8 + ROW * len(result.plan.pipelines))
    drawn(figure, figure.subplots(), result, palette)
    return figure


def drawn(figure: Drawing, axes: Axes, result: Result, palette: dict[str, str]) -> None:
    """Draw a training plan on axes of a figure, or of a part of one."""
    from matplotlib.patches import Patch

    assert result.plan is not None
    cluster: Cluster = result.data.planned_cluster
    parts, pipelines = result.parts, result.plan.pipelines
    longest = max(
        sum(row["compute_us"] + row["hop_us"] for row in rows)
        for rows in parts["stages"]
    )
    unit, name = unit_of(longest)
    wide = figure.bbox.width / figure.dpi
    each = (wide - _BESIDE) / longest  # inches a microsecond
    interleave = split_of(result.data, result.plan).interleave
    held = [[words.layers(x) for x in one.held(interleave)] for one in pipelines]
    boxes = [
        [
            (stage, layers, cluster.node[stage.replicas[0].node].gpu, times)
            for stage, layers, times in zip(pipeline.stages, of, timed, strict=True)
        ]
        for pipeline, of, timed in zip(pipelines, held, parts["stages"], strict=True)
    ]
    types = sorted({gpu for row in boxes for _, _, gpu, _ in row})
    letters = {gpu: ascii_uppercase[i % 26] for i, gpu in enumerate(types)}
    # Boxes of a picture speak alike: each names its type of GPU, or has its letter.
    named = all(
        _fits(_forms(stage, layers, gpu)[0], times["compute_us"] * each)
        for row in boxes
        for stage, layers, gpu, times in row
    )
    for y, row in enumerate(boxes):
        start = 0.0
        for stage, layers, gpu, times in row:
            busy, hop = times["compute_us"] / unit, times["hop_us"] / unit
            box: Look = {"y": y, "height": 0.8, "color": palette[gpu]}
            # The axes hold all boxes: to clip each to them would weigh a third more.
            light: Look = {"edgecolor": "white", "clip_on": False}
            axes.barh(width=busy + hop, left=start, **light, **box)
            if hop:
                dark: Look = {"y": y, "height": 0.74, "color": "black", "alpha": 0.28}
                dark["clip_on"] = False
                axes.barh(width=hop, left=start + busy, **dark)
            forms = _forms(stage, layers, words.plain(gpu) if named else letters[gpu])
            inches = times["compute_us"] * each
            said = next((form for form in forms if _fits(form, inches)), "")
            text: Look = {"ha": "center", "va": "center", "color": "#10151c"}
            axes.text(start + busy / 2, y, said, **text)
            start += busy + hop
    sizes = [f"{p.micro_batches} × {p.micro_batch_size}" for p in pipelines]
    axes.set_yticks(range(len(pipelines)), sizes)
    axes.set(
        xlabel=f"{name} per micro-batch",
        xlim=(0, longest / unit),
        ylim=(len(pipelines) - 0.5, -0.5),
    )
    times = [words.amount(us, "us") for us in parts["pipeline_us"]]
    axes.secondary_yaxis("right").set_yticks(range(len(pipelines)), times)
    names = {gpu: label(f"{letter}: {gpu}") for gpu, letter in letters.items()}
    key = [Patch(color=palette[gpu], label=name) for gpu, name in names.items()]
    columns = legend_columns(names.values(), wide)
    figure.legend(handles=key, loc="outside lower center", ncols=columns, frameon=False)


def unit_of(longest_us: float | Fraction) -> tuple[float, str]:
    """Microseconds of a unit in which the longest time reads well, and its name."""
    return (1e6, "s") if longest_us >= 1_000_000 else (1e3, "ms")


def _forms(stage: Stage, layers: str, gpu: str) -> tuple[str, ...]:
    """Return labels of a box from long to short: `0–12 · 2 × A100` is the first."""
    count = sum(replica.degree for replica in stage.replicas)
    return f"{layers} · {count} × {gpu}", f"{layers} {gpu}", gpu


def _fits(text: str, inches: float) -> bool:
    return (len(text) + _MARGIN) * _LETTER <= inches


def _colour(i: int) -> str:
    if i < len(_PALETTE):
        return _PALETTE[i]
    rgb = hls_to_rgb(i * 137.5 % 360 / 360, 0.72, 0.55)
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)
