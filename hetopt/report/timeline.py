"""The timeline of a simulated plan, a bar a pass, and where its time goes."""

from collections.abc import Iterator
from fractions import Fraction

from ..errors import Unsupported
from ..explaining.simulator import Simulation
from ..explaining.timeline import Timeline
from . import figures, words
from .figures import Drawing
from .sheet import Figure, Section, Sheet, Table

#: What a pass is, and its shades, which alternate from one micro-batch to the next.
KINDS = {"F": "forward", "B": "backward"}
COLOURS = {"F": ("#8ecae6", "#5fa8d3"), "B": ("#f4a261", "#e07a3f")}
_MOST_PASSES = 60_000  # that a picture shows
STAGE_HEADINGS = ("stage", "busy", "idle", "share idle", "micro-batches held")
PIPELINE_HEADINGS = (
    *("pipeline", "micro-batches", "simulated", "judged", "bubble"),
    "waits for the slowest",
)
_SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe"}


def picture(found: Simulation) -> Drawing:
    """Return all pipelines, equal ones once, with a row of passes for each stage.

    The axis ends where the last pass ends.
    """
    from matplotlib.patches import Patch

    simulated, judged = amount(found.iteration_us), amount(found.judged_iteration_us)
    rows = []
    for line, numbers in _alike(found):
        for j in range(len(line.times)):
            name = f"{words.spans(numbers)}.{j}{_named(found, numbers[0], j)}"
            mine = [one for one in line.passes if one.stage == j]
            passes = [
                (one.kind, one.micro_batch, float(one.start_us), float(one.end_us))
                for one in mine
            ]
            rows.append((name, passes))
    figure = figures.canvas(figures.WIDTH, 1.2 + 0.25 * len(rows))
    axes = figure.subplots()
    for place, (_, passes) in enumerate(rows):
        for kind, shades in COLOURS.items():
            for odd, colour in enumerate(shades):
                bars = [
                    (start / 1e6, (end - start) / 1e6)
                    for name, micro_batch, start, end in passes
                    if (name, micro_batch % 2) == (kind, odd)
                ]
                axes.broken_barh(bars, (place - 0.4, 0.8), facecolors=colour)
    every = [one for _, passes in rows for one in passes]
    axes.set(
        xlim=(0, max(end for *_, end in every) / 1e6),
        ylim=(len(rows) - 0.5, -0.5),
        xlabel="time, s",
        ylabel="pipeline.stage",
        title=f"{_schedule(found)}: {simulated} simulated, {judged} judged",
    )
    axes.set_yticks(range(len(rows)), [words.plain(name) for name, _ in rows])
    kinds = {kind for kind, *_ in every}
    key = [
        Patch(color=COLOURS[kind][0], label=name)
        for kind, name in KINDS.items()
        if kind in kinds
    ]
    figure.legend(
        handles=key, loc="outside lower center", ncols=len(key), frameon=False
    )
    return figure


def _schedule(found: Simulation) -> str:
    name = _SCHEDULES[found.schedule]
    if found.runs == 1:
        return name
    return f"Interleaved {name}, {found.runs} virtual stages per GPU"


def _alike(found: Simulation) -> list[tuple[Timeline, list[int]]]:
    """Return each timeline with the numbers of the pipelines that are alike."""
    alike: dict[object, tuple[Timeline, list[int]]] = {}
    for number, line in enumerate(found.timelines):
        names = found.names[number] if found.names else ()
        alike.setdefault((line, names), (line, []))[1].append(number)
    return list(alike.values())


def _named(found: Simulation, pipeline: int, stage: int) -> str:
    return f" · {found.names[pipeline][stage]}" if found.names else ""


# --- sheet -----------------------------------------------------------------------


def sheet(found: Simulation) -> Sheet:
    """Return the timeline of a plan of that instance, and bubbles in numbers."""
    title = f"{found.instance}: {amount(found.iteration_us)} per iteration, simulated"
    drawn = Figure("Timeline", "", lambda: picture(found))
    pipelines = Table.of(PIPELINE_HEADINGS, _pipelines(found))
    sections = (
        Section("Timeline", figures=(drawn,), on_page_only=True),
        Section("Where the time goes", points=tuple(sentences(found))),
        Section("Pipelines, simulated and judged", table=pipelines),
        *(_stage_section(found, *each) for each in _alike(found)),
    )
    facts = (
        ("iteration, simulated", amount(found.iteration_us)),
        ("by the judge's closed form", amount(found.judged_iteration_us)),
    )
    return Sheet(title, sections, "timeline", facts)


def sentences(found: Simulation) -> Iterator[str]:
    """Yield what was run, what an iteration is made of, and where its time goes."""
    yield f"{_schedule(found)}; stages do not compute while they send."
    last = max(line.total_us for line in found.timelines)
    longest = f"the slowest pipeline, {amount(last)}"
    if found.port_us > last:
        longest = f"the busiest network port, {amount(found.port_us)}"
    sync = amount(found.shown_sync_us)
    times = found.pipeline_factor
    factor = "" if times == 1 else f"{float(times):g} × "
    yield (
        f"The iteration: {factor}{longest}; "
        f"synchronisation, {sync}; update, {amount(found.update_us)}"
        + (f"; tied embeddings, {amount(found.tied_us)}" if found.tied_us else "")
        + (f"; overhead, {amount(found.overhead_us)}" if found.overhead_us else "")
        + "."
    )
    judged = Fraction(found.judged_iteration_us)
    less = float((judged - found.iteration_us) / judged)
    side = "less" if less >= 0 else "more"
    yield (
        f"The judge's closed form says {amount(judged)}; the simulation takes "
        f"{words.share(abs(less))} {side}."
    )


def amount(us: Fraction | int) -> str:
    """A time, also one below 0."""
    text = words.amount(abs(float(us)), "us")
    return f"-{text}" if us < 0 else text


def _pipelines(found: Simulation) -> Iterator[tuple[str, ...]]:
    """A row for all pipelines that are alike, simulated and judged."""
    last = max(line.total_us for line in found.timelines)
    alike: dict[tuple[str, ...], list[int]] = {}
    rows = zip(found.timelines, found.judged_us, strict=True)
    for number, (line, judged) in enumerate(rows):
        cells = (
            str(line.micro_batches),
            amount(line.total_us),
            amount(judged),
            words.share(line.bubble),
            amount(last - line.total_us),
        )
        alike.setdefault(cells, []).append(number)
    for same, numbers in alike.items():
        yield words.numbered(numbers), *same


def _stage_section(found: Simulation, line: Timeline, numbers: list[int]) -> Section:
    several = f"s {words.spans(numbers)}" if len(numbers) > 1 else f" {numbers[0]}"
    rows = [
        (
            f"{j}{_named(found, numbers[0], j)}",
            amount(line.total_us - idle),
            amount(idle),
            words.share(float(idle / line.total_us)),
            f"{float(line.held[j]):g}",
        )
        for j, idle in enumerate(line.idle_us)
    ]
    table = Table.of(STAGE_HEADINGS, rows, texts=("stage",))
    return Section(f"Stages of pipeline{several}", table=table)


def check_size(found: Simulation) -> None:
    """`Unsupported` where a picture would have too many passes to see any."""
    if (many := sum(len(line.passes) for line in found.timelines)) > _MOST_PASSES:
        raise Unsupported(
            f"found {many} passes, expected at most {_MOST_PASSES}; leave out --out"
        )
