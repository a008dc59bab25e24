"""What is drawn: axes that end where bars end, and words that say what a thing is."""

from dataclasses import replace
from random import Random

import pytest
from exporter_plans import pipeline

import hetopt
from hetopt.explaining.simulator import simulate
from hetopt.formats.importing.current import in_runs
from hetopt.gaps import GapReport
from hetopt.plans import TrainingPlan
from hetopt.problems.recovery import posing
from hetopt.report import (
    figures,
    gap_picture,
    gaps,
    plans,
    results,
    timeline,
    words,
    writers,
)
from hetopt.result import Method, Result, Status, Stop
from hetopt.schema import Instance

TWO_NODES = "tiny/two-nodes"


def judged(*stages: tuple[int, int, str]) -> Result:
    """Return a plan of one pipeline, a GPU for each stage, as a result."""
    data = hetopt.load(TWO_NODES)
    shapes = [(b - a, 1, 1) for a, b, _ in stages]
    gpus = [f"{node}:0" for *_, node in stages]
    one = pipeline(gpus, shapes, data.workload.global_batch, 1)
    plan = TrainingPlan(pipelines=(one,))
    method = Method("someone", "heuristic")
    state = Status.FEASIBLE, Stop.FINISHED
    return Result("training_plan", data, method, *state, plan=plan)


@pytest.mark.parametrize("width", [figures.WIDTH, 4.4])
@pytest.mark.parametrize("seed", range(4))
def test_an_axis_ends_where_its_longest_bar_ends(seed: int, width: float) -> None:
    rng = Random(seed)
    values = [rng.uniform(0, 10 ** rng.randint(0, 4)) for _ in range(5)]
    figure = figures.canvas(width, 3)
    axes = figure.subplots()
    figures.bars(axes, ["a name"] * 5, values, ["19.18 s, +232.02%"] * 5)
    axes.set_xlabel("iteration time, s", loc="left")
    figure.draw_without_rendering()
    assert axes.spines["bottom"].get_bounds() == (0, max(values))
    assert all(0 <= mark <= max(values) for mark in axes.get_xticks())
    # The words begin behind their bars, and end within the picture.
    for text, value in zip(axes.texts, values, strict=True):
        box = text.get_window_extent()
        assert box.x0 > axes.transData.transform((value, 0))[0]
        assert box.x1 <= figure.bbox.x1
    assert axes.xaxis.label.get_window_extent().x1 <= figure.bbox.x1


def test_a_method_of_several_seeds_is_one_bar_and_one_plan() -> None:
    found = judged((0, 2, "node0"), (2, 4, "node1"))
    seeds = [
        replace(found, method=replace(found.method, seed=seed)) for seed in range(3)
    ]
    report = GapReport.of(seeds)
    html = writers.page(gaps.sheet(report))
    assert "someone, someone" not in html
    axes = gap_picture.picture(report).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["someone"]


def interleaved() -> tuple[Instance, TrainingPlan]:
    """Return two stages of five and three layers in two virtual stages each."""
    found = judged((0, 3, "node0"), (3, 4, "node1"))
    tree = found.data.model_dump(mode="json", exclude_none=True)
    tree["model"]["layers"] = 8
    tree["workload"]["alternatives"] = {"interleave": [1, 2]}
    data = Instance.model_validate(tree, strict=False)
    document = found.plan.model_dump(mode="json")
    first, second = document["pipelines"][0]["stages"]
    first["layers"], second["layers"] = [0, 5], [5, 8]
    plan = TrainingPlan.model_validate(document | {"interleave": 2}, strict=False)
    return data, plan


def test_interleaved_stages_are_shown_with_the_layers_that_are_launched() -> None:
    """The layers of a stage are those of Megatron's layout, dealt one by one."""
    data, plan = interleaved()
    dealt, launched = iter(range(8)), [[], []]
    for part, count in enumerate(in_runs([5, 3], 2)):
        launched[part % 2] += [next(dealt) for _ in range(count)]
    assert launched == [[0, 1, 2, 5, 6], [3, 4, 7]]
    told = [words.spans(layers) for layers in launched]
    assert told == ["0–2, 5–6", "3–4, 7"]
    checked = hetopt.check(plan, data)
    held = [
        sorted(int(unit) for unit in need.units if unit.isdigit())
        for need in posing.needs(data, plan)
    ]
    assert held == launched  # what a recovery moves
    table = results.table(data, plan, checked.parts)
    at = table.headings.index("layers")
    assert [row[at].text for row in table.rows] == told
    html = writers.page(timeline.sheet(simulate(data, plan)))
    assert all(f"layers {layers} on " in html for layers in told)
    found = Result(
        *("training_plan", data, Method("someone", "heuristic")),
        *(Status.FEASIBLE, Stop.FINISHED),
        plan=plan,
    )
    palette = plans.colours(data.planned_cluster.gpus)
    boxes = [text.get_text() for text in plans.drawing(found, palette).axes[0].texts]
    assert [box.partition(" ·")[0] for box in boxes if box] == told
