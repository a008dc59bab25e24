"""What a program lacks is an error of the request, never a proof of anything."""

import json
from pathlib import Path
from typing import Any

import pytest
from brute_force_grids import SYMMETRIC, best_grid
from command_line import typed
from exporter_plans import pipeline
from small_instances import small

import hetopt
from hetopt.api import margins
from hetopt.bounds import impossible
from hetopt.errors import Unsupported
from hetopt.exact import training_plan
from hetopt.formats.exporting import export_plan
from hetopt.modelling import Limits
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan import support, targets
from hetopt.result import Status
from hetopt.schema import Instance
from hetopt.schema.targets import TARGETS

LATENT = {"key_rank": 64, "plain": 64, "rotary": 32, "value_dim": 64}
#: What is asked of a program, and one that lacks it.
ASKED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "latent attention (MLA)": ("executor", {"latent": LATENT}, {}),
    "training in single precision": ("torchtitan", {}, {"precision": "fp32"}),
    "SGD instead of AdamW": (
        "torchtitan",
        {},
        {"precision": "bf16_mixed", "optimiser": "sgd"},
    ),
    "its models are llama-7b": ("hexiscale", {}, {"precision": "fp16_mixed"}),
    "has no bf16": ("megatron", {}, {"precision": "bf16_mixed"}),
    "layers that are not recomputed": ("hexiscale", {}, {"recompute": "none"}),
}


def asking(words: str, target: str | None = None) -> Instance:
    """A small instance that asks for that of a target; memory would be ample."""
    lacking, model, costs = ASKED[words]
    card = "V100-32GB-SXM2" if words == "has no bf16" else "A100-80GB-SXM4"
    return small(
        *(f"{card}*2 {card}*2", {card: (100, 32)}),
        model={"hidden": 512, "vocabulary": 32_000} | model,
        inter=5,
        sequence_length=128,
        costs=costs,
        runs_on=target or lacking,
    )


PLAN = TrainingPlan(pipelines=(pipeline(["n0:0"], [(4, 1, 1)], 8, 1),))


@pytest.mark.parametrize("words", ASKED)
def test_every_command_refuses_what_the_program_lacks(
    words: str, tmp_path: Path
) -> None:
    data = asking(words)
    file, plan = tmp_path / "asking.json", tmp_path / "plan.json"
    file.write_text(data.model_dump_json())
    made = {"instance": data.model_dump(mode="json")}
    plan.write_text(json.dumps(made | {"plan": PLAN.model_dump(mode="json")}))
    out = str(tmp_path / "out")
    commands = [
        ["plan", str(file), "--time-limit", "2"],
        ["solve", str(file), "--time-limit", "2"],
        ["compare", str(file), "--time-limit", "2"],
        ["check", str(plan)],
        ["check", str(plan), "--for", data.workload.runs_on],
    ]
    told = typed("export", plan, "--to", "slurm", "--out", out)
    assert told.exit_code == 2
    assert not Path(out).exists()
    for command in commands:
        answer = typed(*command, "--json")
        assert answer.exit_code == 2, (command, answer.output)
        error = json.loads(answer.stdout)["error"]
        assert error["kind"].lower() == "unsupported"
        assert "not supported by our" in error["message"]
        assert words in error["message"]
        assert "proved" not in answer.output


@pytest.mark.parametrize("words", ASKED)
def test_arithmetic_and_the_exact_method_prove_nothing_of_it(words: str) -> None:
    data = asking(words)
    assert impossible.reason(data) is None
    with pytest.raises(Unsupported, match="not supported by our"):
        training_plan.solve(data, limits=Limits(time_s=2))
    assert support.reason(asking(words, "any")) is None
    assert hetopt.plan(asking(words, "any"), "megatron", limits=5).plan is not None


@pytest.mark.parametrize("words", ASKED)
def test_named_targets_have_what_the_others_lack(words: str) -> None:
    why = str(support.reason(asking(words)))
    named = why.partition("or with --for ")[2]
    for target in named.replace(" or ", ", ").split(", ") if named else ():
        assert support.reason(asking(words, target)) is None, target


def test_targets_side_by_side_say_which_is_not_supported(tmp_path: Path) -> None:
    data = asking("latent attention (MLA)")
    file = tmp_path / "asking.json"
    file.write_text(data.model_dump_json())
    answer = typed("compare", file, "--targets", "--time-limit", "0.3", "--json")
    rows = {row["target"]: row for row in json.loads(answer.stdout)["rows"]}
    for target, row in rows.items():
        lacks = support.lacking(data.on(target))
        assert row["unsupported"] == ("; ".join(lacks) or None)
        assert row["result"]["status"] != "infeasible"
        assert not lacks or row["result"]["status"] == Status.UNDECIDED.value
    assert rows["executor"]["unsupported"] == "latent attention (MLA)"
    assert rows["deepspeed"]["unsupported"] is None


def test_shapes_that_a_program_lacks_leave_a_space_of_which_things_are_proved() -> None:
    """One node has no room for half the layers: a grid has none, others might."""
    data = asking("training in single precision", "executor")
    tree = data.model_dump(mode="json")
    tree["cluster"]["gpus"]["A100-80GB-SXM4"]["memory_gib"] = 0.05
    small = Instance.model_validate_json(json.dumps(tree))
    for target in ("executor", "megatron"):
        result = hetopt.plan(small.on(target), limits=5)
        assert result.status is Status.INFEASIBLE
        assert "MiB" in result.reasons[0]


# --- cards of several makers --------------------------------------------------------

OF_MAKERS = {"H100-80GB-SXM5": (0.5, 2), "mine": {"peak_tflops": 0.7, "memory_gib": 2}}
OF_MAKERS["mine"] |= {"card": "MI300X"}
OVER_BOTH = TrainingPlan(
    pipelines=(pipeline(["n0:0", "n1:0"], [(1, 1, 1), (1, 1, 1)], 4, 1),)
)
JOINING = {"any", "architecture", "flagscale"}


def of_two_makers(target: str) -> Instance:
    nodes = " ".join(f"{name}*2" for name in OF_MAKERS)
    model = {"layers": 2, "hidden": 256, "vocabulary": 0}
    return small(nodes, OF_MAKERS, model=model, global_batch=4, runs_on=target)


@pytest.mark.parametrize("target", SYMMETRIC)
def test_plans_have_cards_of_one_maker(target: str) -> None:
    """The best grid of one maker's cards, which the judge alone finds by trying all."""
    data = of_two_makers(target)
    found = hetopt.plan(data, limits=4)
    assert len({replica.node for replica in found.plan.replicas()}) == 1
    assert found.objective == best_grid(data)
    assert found.bound.value <= found.objective


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_cards_of_two_makers_meet_where_a_target_joins_them(target: str) -> None:
    data, plan = of_two_makers(target), OVER_BOTH
    told = judge.evaluate(data, plan).violations
    mixed = [x for x in told if "no common collectives library" in x.by]
    assert bool(mixed) != (target in JOINING)
    tree = data.model_dump(mode="json", exclude_unset=True)
    del tree["cluster"]["gpus"]["mine"]["card"]
    unknown = Instance.model_validate(tree, strict=False)
    found = judge.evaluate(unknown, plan).violations  # nobody's card joins any
    assert not any("no common collectives library" in x.by for x in found)


def test_flagcx_joins_two_makers_and_no_third() -> None:
    tree = of_two_makers("flagscale").model_dump(mode="json", exclude_unset=True)
    tree["cluster"]["gpus"]["mine"]["card"] = "Gaudi2-96GB"
    data = Instance.model_validate(tree, strict=False)
    told = judge.evaluate(data, OVER_BOTH).violations
    assert any("NVIDIA" in x.by and "Intel" in x.by for x in told)
    assert len(targets.by_maker(data)) == 2


def test_exports_of_cards_of_two_makers_are_refused() -> None:
    data, plan = of_two_makers("any"), OVER_BOTH
    for target in ("megatron", "deepspeed", "torchtitan", "torchrun"):
        with pytest.raises(Unsupported, match=f"not supported by {target}: cards of"):
            export_plan(target, data, plan)
    files = export_plan("flagscale", data, plan)
    assert "distributed_backend: flagcx" in files["train/plan.yaml"]
    (told,) = margins.warnings(data, judge.evaluate(data, plan))
    assert told.startswith("cards of AMD and NVIDIA")
