"""Gradients have the width that is launched: table, judge and files agree."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from assembled import assembled, instance_of
from exporter_plans import EVEN, even_for, instance
from places import ROOT

from hetopt.costs import under
from hetopt.formats import exporting
from hetopt.problems import training_plan
from hetopt.problems.training_plan import support
from hetopt.schema import PRECISIONS, Instance
from hetopt.schema.targets import TARGETS
from hetopt.schema.widths import LAUNCHED, launched_precision

Files = dict[str, str]
Widths = tuple[int, int, int]  # of weights, of sums of gradients, on the wire
ROWS = [(target, kind) for target, rows in LAUNCHED.items() for kind in rows]
WITH_FILES = [(target, kind) for target, kind in ROWS if target != "executor"]


def costs_of(kind: str, target: str) -> dict[str, Any]:
    """Settings that the target has beside a precision."""
    zero = 2 if target == "torchtitan" else 0
    if target == "deepspeed":
        zero = 1
    return {"precision": kind, "zero": zero}


def files_of(target: str, kind: str) -> Files:
    """What is written for a plan of that precision, or of one that it widens."""
    data = instance(costs=costs_of(kind, target))
    return exporting.export_plan(target, data, even_for(target))


# --- what each program makes of its files, by its own defaults ---------------------


def megatron(words: dict[str, Any]) -> Widths:
    """`validate_args` of megatron/training/arguments.py."""
    if not (words.get("bf16") or words.get("fp16")):
        return 4, 4, 4
    wide = bool(words.get("accumulate_allreduce_grads_in_fp32"))
    if words.get("bf16"):
        wide = not words.get("grad_reduce_in_bf16")
    return (2, 4, 4) if wide else (2, 2, 2)


def of_megatron(files: Files) -> Widths:
    lines = files["arguments.txt"].splitlines()
    flags = [line[2:] for line in lines if line.startswith("--") and " " not in line]
    return megatron({flag.replace("-", "_"): True for flag in flags})


def of_flagscale(files: Files) -> Widths:
    system = yaml.safe_load(files["train/plan.yaml"])["system"]
    return megatron(system.get("precision", {}))


def of_bridge(files: Files) -> Widths:
    """Its recipes, of which bf16's reduces in fp32, with the fields that are set."""
    told = json.loads(files["settings.json"])
    recipe = told[""]["mixed_precision"]
    if recipe is None:
        assert "mixed_precision" not in told
        return 4, 4, 4
    fields = {"grad_reduce_in_fp32": recipe == "bf16_mixed"} | told["mixed_precision"]
    return (2, 4, 4) if fields["grad_reduce_in_fp32"] else (2, 2, 2)


def of_deepspeed(files: Files) -> Widths:
    """`get_data_types` and `communication_data_type` of its engine."""
    told = json.loads(files["ds_config.json"])
    sizes = {"fp32": 4, "fp16": 2, "bf16": 2}
    halves = [k for k in ("fp16", "bf16") if told.get(k, {}).get("enabled")]
    weight, usual = (2, 2) if halves else (4, 4)
    sums = told.get("data_types", {}).get("grad_accum_dtype")
    wire = told.get("communication_data_type")
    return (
        weight,
        usual if sums is None else sizes[sums],
        weight if wire is None else sizes[wire],
    )


def of_torchtitan(files: Files) -> Widths:
    """FSDP casts weights to bf16, and reduces in fp32 whatever it is told."""
    assert not re.search("mixed_precision|dtype", files["plan.toml"])
    assert "mixed_precision" not in files["hetopt_plan.py"]
    return 2, 4, 4


def of_trainer(files: Files) -> Widths:
    """Autocast copies weights to bf16, and leaves gradients as wide as weights are."""
    told = yaml.safe_load(files["arguments.yaml"])
    if told["dtype"] == "bfloat16":
        return 2, 2, 2
    return (2, 4, 4) if told["bf16"] else (4, 4, 4)


def of_factory(files: Files) -> Widths:
    """It trains in fp32 unless told to be `pure_bf16`, products in bf16."""
    told = yaml.safe_load(files["plan.yaml"])
    assert "pure_bf16" not in told
    return (2, 4, 4) if told["bf16"] else (4, 4, 4)


READ: dict[str, Callable[[Files], Widths]] = {
    "megatron": of_megatron,
    "megatron_bridge": of_bridge,
    "flagscale": of_flagscale,
    "deepspeed": of_deepspeed,
    "torchtitan": of_torchtitan,
    "transformers": of_trainer,
    "accelerate": of_trainer,
    "llamafactory": of_factory,
}


@pytest.mark.parametrize(("target", "kind"), WITH_FILES)
def test_files_launch_what_the_table_says(target: str, kind: str) -> None:
    weight, gradient, _ = PRECISIONS[kind]
    assert READ[target](files_of(target, kind)) == (weight, gradient, gradient)


@pytest.mark.parametrize("kind", ["fp32", "fp16_mixed", *PRECISIONS])
@pytest.mark.parametrize("target", [name for name in TARGETS if name in LAUNCHED])
def test_plans_for_a_target_are_weighed_as_it_launches_them(
    target: str, kind: str
) -> None:
    """A precision is launched as it is, with wider gradients, or refused by name."""
    data = instance(costs=costs_of(kind, target)).on(target)
    runs, made = launched_precision(target, kind), data.workload.costs.precision
    if runs in LAUNCHED[target]:
        assert made == runs
        assert support.reason(data) is None
    else:
        assert support.reason(data) is not None
    assert data.workload.costs.bytes_per_parameter == sum(PRECISIONS[str(made)])


def test_a_plan_whose_wider_gradients_do_not_fit_is_refused() -> None:
    """Two bytes a parameter more, and no memory is left for them."""
    seen = set()
    for reserve in range(76_000, 81_920, 100):
        costs = costs_of("bf16_mixed", "torchtitan") | {"reserve_mib": reserve}
        data = instance(costs=costs, hidden=4096)
        wide = data.launched_by("torchtitan")
        fits, fits_wide = (training_plan.evaluate(x, EVEN).valid for x in (data, wide))
        if fits:
            why = exporting.reasons("torchtitan", data, EVEN)
            assert bool(why) != fits_wide
            assert fits_wide or "fp32 gradients" in why[0]
            seen.add(fits_wide)
    assert seen == {True, False}


def _assembled(folder: Path, *told: str) -> Instance:
    hosts = ["a slots=8 type=A100-80GB-SXM4"]
    options = ["inter_gbytes_per_s=25", "runs_on=any", *told]
    work = {"global_batch": 64, "sequence_length": 4096}
    return instance_of(assembled(folder, hosts, *options, work=work))


@pytest.mark.parametrize("zeros", ["1,3", "3,1"])
def test_a_choice_is_timed_as_if_assembled_alone(zeros: str, tmp_path: Path) -> None:
    both, alone = (_assembled(tmp_path, f"zero={x}") for x in (zeros, zeros[-1]))
    costs, told = under(both, zero=int(zeros[-1])).workload.costs, alone.workload.costs
    assert costs.sync_factor == pytest.approx(told.sync_factor, rel=1e-3)
    assert costs.gathers == "micro_batch"


@pytest.mark.parametrize("zero", ["1", "3"])
def test_wider_gradients_are_timed_as_if_assembled_with_them(
    zero: str, tmp_path: Path
) -> None:
    """Gradients are reduced once in their width, weights of two bytes gathered."""
    narrow, wide = (
        _assembled(tmp_path, f"zero={zero}", f"precision={precision}")
        for precision in ("bf16_mixed", "bf16_fp32_gradients")
    )
    costs = narrow.on("torchtitan").workload.costs
    factor = costs.sync_factor
    assert factor == pytest.approx(wide.workload.costs.sync_factor, rel=1e-3)
    assert factor < narrow.workload.costs.sync_factor
    rest = {"sync_factor": 1}
    assert costs.model_copy(update=rest) == wide.workload.costs.model_copy(update=rest)


def test_the_page_has_the_table() -> None:
    text = (ROOT / "hetopt" / "formats" / "README.md").read_text("utf-8")
    found = [
        tuple(cell.strip(" `") for cell in line.strip("|").split("|"))
        for line in text.splitlines()
        if line.startswith("| ") and line.split("|")[2].strip(" `") in PRECISIONS
    ]
    wanted = [(target, kind) for target, rows in LAUNCHED.items() for kind in rows]
    assert [row[:2] for row in found] == wanted
    for _, kind, *bytes_, _ in found:
        weight, gradient, reduced, master, moments = map(int, bytes_)
        assert (weight, gradient, master + moments) == PRECISIONS[kind]
        assert reduced == gradient
