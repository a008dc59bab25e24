"""The matrix of methods and settings says what methods do, on every setting."""

from collections.abc import Callable
from random import Random
from typing import Any

import drawing
import pytest
import soaking
from command_line import typed
from places import ROOT
from random_calibrations import calibration, sheet
from small_instances import document
from soaking import capability as kind

import hetopt
from hetopt import capability, registry
from hetopt.capability.methods import METHODS, Carried
from hetopt.capability.settings import READ_BY_ALL, SETTINGS
from hetopt.errors import Unsupported
from hetopt.exact import training_plan
from hetopt.modelling import Limits
from hetopt.report.listing import page
from hetopt.result import Status
from hetopt.schema import GROUP_OF, Alternatives

Tree = dict[str, Any]
_DRAWN, _MANY = 12, 400  # instances, in the default run and in the slow one
_ENOUGH_S = 30  # to look at all plans of a small cluster, which takes a second


def plain() -> Tree:
    """Return an instance that asks for nothing: HexiScale's appendix on three GPUs."""
    shape = {"layers": 3, "hidden": 256, "heads": 4}
    costs = {"head": "omit", "activations": "checkpoint", "in_flight": "one"}
    gpus = {"A": (10, 1)}
    return document("A*2 A*1", gpus, model=shape, global_batch=4, costs=costs)


def costs(**settings: Any) -> Callable[[Tree], None]:
    return lambda tree: tree["workload"]["costs"].update(settings)


def other(**offered: list[Any]) -> Callable[[Tree], None]:
    def change(tree: Tree) -> None:
        tree["workload"]["costs"]["activations"] = "standard"
        tree["workload"]["alternatives"] = offered

    return change


def calibrated(
    alternatives: Tree | None = None, **settings: Any
) -> Callable[[Tree], None]:
    """Return a change to calibrated times, without an optimiser, and to settings."""

    def change(tree: Tree) -> None:
        rng, own = Random(1), tree["workload"]["costs"]
        own |= {"layer_times": "calibrated", "calibration": calibration(rng)}
        own["calibration"]["constants"].pop("update")
        tree["cluster"]["gpus"]["A"] |= sheet(rng, 10)
        tree["model"] |= {"experts": 4, "active_experts": 2}
        tree["workload"] |= {"alternatives": alternatives or {}}
        own |= settings

    return change


def divided(**settings: Any) -> Callable[[Tree], None]:
    return calibrated(activations="calibrated", **settings)


def update(tree: Tree) -> None:
    calibrated()(tree)
    tree["workload"]["costs"]["calibration"]["constants"]["update"] = 0.8


def profile(**more: Any) -> Callable[[Tree], None]:
    rows = [
        {"gpu": "A", "tensor_parallel": t, "micro_batch": 1, "layer_us": [90 // t] * 3}
        for t in (1, 2)
    ]
    return costs(layer_times="profile", profile=[row | more for row in rows])


def inside(*keys: str, **values: Any) -> Callable[[Tree], None]:
    def change(tree: Any) -> None:
        for key in keys:
            tree = tree[int(key) if key.isdigit() else key]
        tree.update(values)

    return change


def hosted(tree: Tree) -> None:
    costs(offload={})(tree)
    tree["cluster"]["gpus"]["A"]["host_gbytes_per_s"] = 20


def on_small_hosts(tree: Tree) -> None:
    hosted(tree)
    tree["cluster"]["nodes"][0]["host_gib"] = 0.25


#: Of every setting, an instance that asks for it and for as little else as can be.
EXAMPLES: dict[str, Callable[[Tree], None]] = {
    "runs_on": inside("workload", runs_on="architecture"),
    "micro_batch_sizes": inside("workload", micro_batch_sizes=[1, 2]),
    "context_parallel": divided(context_parallel=2),
    "expert_parallel": divided(expert_parallel=2),
    "choice_of_recompute": other(recompute=["none"]),
    "choice_of_zero": other(zero=[2]),
    "choice_of_context": divided(alternatives={"context_parallel": [2]}),
    "choice_of_experts": divided(alternatives={"expert_parallel": [2]}),
    "choice_of_interleave": other(interleave=[2]),
    "choice_of_groups": divided(zero=1, alternatives={"zero_groups": [2]}),
    "zero": costs(zero=2),
    "zero_and_samples": lambda tree: tree["workload"].update(
        micro_batch_sizes=[2], alternatives={"zero": [1]}
    ),
    "zero_groups": costs(zero=1, zero_groups=2),
    "gathers": costs(zero=3, gathers="micro_batch"),
    "lora": costs(lora={"rank": 4}),
    "offload": hosted,
    "host_memory": on_small_hosts,
    "recompute": costs(recompute="none"),
    "activations": costs(activations="standard"),
    "in_flight": costs(in_flight="1f1b"),
    "interleave": costs(interleave=2),
    "layout": costs(layout="told"),
    "lockstep": costs(pipeline="lockstep"),
    "pipeline_factor": costs(pipeline_factor=1.5),
    "sync": costs(sync="bottleneck"),
    "sync_factor": costs(sync_factor=0.5),
    "sync_overlap": costs(sync_overlap="backward"),
    "tied_sync": costs(tied_sync=True),
    "hops": costs(hops="both"),
    "adapters": inside("cluster", "nodes", "0", adapters=1),
    "pairs": inside("cluster", "inter", pairs=[["n0", "n1", 2]]),
    "profile": profile(),
    "calibrated": calibrated(),
    "timed_update": inside("cluster", "gpus", "A", memory_gbytes_per_s=900),
    "weighed": profile(layer_mib=[5, 5, 5]),
    "calibrated_memory": divided(),
    "calibrated_update": update,
    "profiled_update": profile(update_us=[5, 5, 5]),
    "iteration_overhead": costs(iteration_overhead_us=70),
    "head": costs(head="include"),
    "unequal_layers": inside("model", layer_parameters=[10**6, 10**6, 2 * 10**6]),
    "many_layers": inside("model", layers=capability.MOST_TABLED + 1),
}


def example(name: str) -> Tree:
    tree = plain()
    EXAMPLES[name](tree)
    return tree


def test_every_field_of_costs_is_a_setting_or_read_by_all() -> None:
    fields = [one.field for one in SETTINGS.values()]
    told = {field.split(".")[2] for field in fields if ".costs." in field}
    assert told | READ_BY_ALL == {*GROUP_OF}
    offered = {field.split(".")[2] for field in fields if ".alternatives." in field}
    assert offered == {*Alternatives.model_fields}


@pytest.mark.parametrize("method", METHODS)
def test_every_cell_is_of_a_setting_and_says_why(method: str) -> None:
    row = METHODS[method]
    assert {*row.cells} <= {*SETTINGS}
    for cell in row.cells.values():
        assert cell.carried is not Carried.EXACTLY
        assert cell.reason
        assert not cell.reason.endswith(".")


def test_every_method_planner_and_statement_has_a_row() -> None:
    kinds = {"planners": "planner", "formulations": "statement"}
    for folder, word in kinds.items():
        for name in registry.entries_for(folder, "training_plan"):
            assert capability.carries(f"{word} {name}", drawing.read(plain()))
    for name in ("training_plan", "one_pipeline"):
        assert f"exact method {name}" in METHODS


def test_what_asks_for_nothing_is_carried_by_all() -> None:
    instance = drawing.read(plain())
    assert not [name for name, one in SETTINGS.items() if one.found(instance)]
    assert all(capability.carries_exactly(method, instance) for method in METHODS)
    check(plain())


def check(tree: Tree) -> None:
    assert kind.check({"instance": tree, "seed": 1})


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_refused_or_carried_as_the_matrix_says(name: str) -> None:
    tree = example(name)
    assert SETTINGS[name].found(drawing.read(tree)) is not None
    check(tree)


def exactly() -> list[str]:
    """Return settings that the exact method carries exactly, by their examples."""
    of = {name: drawing.read(example(name)) for name in SETTINGS}
    method = "exact method training_plan"
    return [name for name, x in of.items() if capability.carries_exactly(method, x)]


@pytest.mark.parametrize("name", exactly())
def test_what_is_carried_exactly_is_proved_to_the_end(name: str) -> None:
    instance = drawing.read(example(name))
    found = training_plan.solve(instance, limits=Limits(time_s=_ENOUGH_S))
    assert found.status in (Status.OPTIMAL, Status.INFEASIBLE)


@pytest.mark.parametrize("seed", range(_DRAWN))
def test_drawn_settings_are_refused_or_carried_as_the_matrix_says(seed: int) -> None:
    assert kind.check(soaking.drawn("capability", seed))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(_DRAWN, _MANY, 50))
def test_many_drawn_settings_are_as_the_matrix_says(first: int) -> None:
    for seed in range(first, min(first + 50, _MANY)):
        assert kind.check(soaking.drawn("capability", seed)), seed


def test_the_page_is_what_the_command_writes() -> None:
    shipped = (ROOT / "hetopt/capability/REFERENCE.md").read_text("utf-8")
    again = "run `hetopt list capabilities --markdown > hetopt/capability/REFERENCE.md`"
    assert page("capabilities", capability.rows()) == shipped, again
    assert typed("list", "capabilities", "--markdown").stdout == shipped


def test_a_refusal_names_method_setting_value_reason_and_remedy() -> None:
    instance = drawing.read(example("zero"))
    with pytest.raises(Unsupported) as refused:
        hetopt.solve(instance, "one_pipeline", limits=1)
    assert refused.value.field == "workload.costs.zero"
    said = "exact method one_pipeline: ZeRO (workload.costs.zero: 2): a replica's share"
    assert said in str(refused.value)
    assert "use the exact method training_plan" in str(refused.value)
