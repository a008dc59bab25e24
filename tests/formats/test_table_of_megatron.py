"""What the table of Megatron-LM writes is what it reads, in every dialect."""

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from exporter_plans import EVEN, UNEVEN, instance
from flat import flat
from hypothesis import given, settings
from hypothesis import strategies as st
from random_calibrations import calibrated

from hetopt.errors import InstanceError
from hetopt.formats import exporting
from hetopt.formats.importing import changes, forms
from hetopt.formats.importing.asked import opened
from hetopt.formats.importing.current import cut
from hetopt.formats.importing.placing import Claim
from hetopt.formats.megatron.arguments import arguments
from hetopt.formats.runs.source import Source
from hetopt.plans import TrainingPlan
from hetopt.schema import Instance
from hetopt.schema.fields import fields_of
from hetopt.schema.widths import LAUNCHED
from hetopt.trainers.megatron import TABLE
from hetopt.trainers.megatron.relatives import BRIDGE, FLAGSCALE
from hetopt.trainers.megatron.stages import Division, in_runs
from hetopt.trainers.table import Choice, Fields, Row, Rule, text_of

#: Fields that no name tells where they are as here, or that another tells.
_APART = {"longest", "stage_layers", "vp", "division", "parts"}


@st.composite
def _models(draw: Any) -> dict[str, Any]:
    """Draw the fields of a model: attention of each kind, experts, MTP, windows."""
    heads = draw(st.sampled_from([4, 8, 16]))
    made: dict[str, Any] = {
        **{"heads": heads, "hidden": heads * draw(st.sampled_from([64, 128]))},
        **{"vocabulary": draw(st.sampled_from([1000, 32_000, 50_257]))},
        **{"gated": draw(st.booleans()), "tied_embeddings": draw(st.booleans())},
        "intermediate": draw(st.sampled_from([None, 1024, 2816])),
    }
    kind = draw(st.sampled_from(["plain", "grouped", "wide", "latent"]))
    if kind == "latent":
        ranks = st.sampled_from([0, 256])
        made["latent"] = {"query_rank": draw(ranks), "key_rank": 64}
        made["latent"] |= {"plain": 64, "rotary": 32, "value_dim": 64}
    if kind in ("grouped", "wide"):
        made["kv_heads"] = draw(st.sampled_from([1, 2, heads]))
        made["qk_norm"] = draw(st.booleans())
    if kind == "wide":
        made["head_dim"] = 96
    if draw(st.booleans()):
        made |= {"experts": 8, "active_experts": draw(st.sampled_from([1, 2]))}
        made |= {"expert_intermediate": 512, "dense_layers": draw(st.integers(0, 2))}
        made["shared_experts"] = draw(st.integers(0, 2))
    return made


_COSTS = st.fixed_dictionaries(
    {
        "precision": st.sampled_from(["bf16_mixed", "bf16_fp32_gradients", "fp32"]),
        "recompute": st.sampled_from(["none", "selective", "full", "mlp+layernorm"]),
        "zero": st.sampled_from([0, 1]),
        "optimiser": st.sampled_from(["adamw", "sgd", "muon"]),
    }
)
_TOLD = st.fixed_dictionaries(
    {
        "norm": st.sampled_from(["rms", "layer"]),
        **{"norm_epsilon": st.sampled_from([1e-5, 1e-6]), "bias": st.booleans()},
        "positions": st.just("rope"),
        "rope_base": st.sampled_from([10_000.0, 500_000.0]),
        "dropout": st.sampled_from([0.0, 0.1]),
    }
)


@st.composite
def _runs(draw: Any) -> Fields:
    """Draw an instance and a grid of ranks, by their fields."""
    runs = draw(st.sampled_from([1, 2]))
    stages = draw(
        st.lists(st.integers(runs, 6), min_size=1 if runs == 1 else 2, max_size=5)
    )
    mtp = draw(st.integers(0, 1))
    stages[-1] += mtp
    parts = in_runs([*stages[:-1], stages[-1] - mtp], runs)
    parts[-1] += mtp
    if draw(st.booleans()) and len(parts) > 1:  # told: ends alone, unequal runs
        parts[0], parts[1] = 0, parts[0] + parts[1]
        stages = [sum(parts[j :: len(stages)]) for j in range(len(stages))]
    model = draw(_models()) | {"mtp_layers": mtp}
    model["dense_layers"] = min(model.get("dense_layers", 0), sum(stages) - mtp)
    data = instance(costs=draw(_COSTS), **model, layers=sum(stages))
    degrees = st.sampled_from([1, 2, 4])
    experts = draw(degrees) if data.model.experts else 1
    tp, more = draw(degrees), draw(_TOLD) if draw(st.booleans()) else {}
    if data.model.experts and tp > 1 and experts == 1:
        more.pop("bias", None)  # which Megatron-LM does not start with
    return {
        **fields_of(data, tp),
        **more,
        **{"tp": tp, "pp": len(stages), "cp": draw(degrees), "mbs": draw(degrees)},
        **{"ep": experts, "etp": 1 if experts > 1 else None},
        **{"vp": runs, "stage_layers": tuple(stages)},
        "parts": None if all(parts) else tuple(parts),
        "products": draw(st.sampled_from(["bf16", "fp8", "mxfp8", "nvfp4"])),
        **{"hosted": draw(st.booleans()), "fused_loss": draw(st.booleans())},
        "zero_groups": draw(st.sampled_from([1, 2])),
    }


def _same(told: Fields, wanted: Fields) -> None:
    """Fields are the wanted ones; what is not told is as the trainer has it."""
    for entry in TABLE.entries:
        for name in {*entry.fields} - _APART:
            value, found = wanted.get(name), told.get(name)
            if value is None or (isinstance(entry, Row) and not entry.when(wanted)):
                continue
            if found is None and isinstance(entry, Row):
                found = entry.usual(wanted)
            if found is None and isinstance(entry, Choice):
                found = next(v for v, words in entry.values.items() if not words)
            assert found == value, name
    mtp, whole = wanted["mtp_layers"], sum(wanted["stage_layers"])
    division = told.get("division", Division())
    parts = division.parts(wanted["pp"], whole - mtp, mtp)
    found = cut(parts, wanted["pp"], whole, "", mtp)
    assert found == (wanted["stage_layers"], wanted["vp"], wanted["parts"])


@settings(max_examples=300, deadline=None)
@given(wanted=_runs())
def test_what_is_written_is_read(wanted: Fields) -> None:
    made = TABLE.write(wanted)
    args = {name: text_of(value) for name, value in made.items()}
    assert list(TABLE.violations(args)) == []
    read, faults = TABLE.read(args)
    assert not faults
    _same(read, wanted)
    # What is read, written again, is the same again.
    again = {**wanted, **read, "stage_layers": wanted["stage_layers"]}
    assert TABLE.write(again) == made


@pytest.mark.parametrize("dialect", ["args", "yaml", "flagscale", "bridge"])
@settings(max_examples=100, deadline=None)
@given(wanted=_runs())
def test_every_dialect_says_the_same(dialect: str, wanted: Fields) -> None:
    made = TABLE.write(wanted)
    lines = [
        f"--{k} '{text_of(v)}'" if v is not True else f"--{k}" for k, v in made.items()
    ]
    tree = {
        "args": {},
        "yaml": {name.replace("-", "_"): value for name, value in made.items()},
        "flagscale": FLAGSCALE.translate(made),
        "bridge": BRIDGE.translate(made),
    }[dialect]
    if dialect == "flagscale":
        degrees = ("tensor_model_parallel_size", "pipeline_model_parallel_size")
        tree["system"] = {
            **tree.get("system", {}),
            **{name: tree["model"].pop(name) for name in degrees},
            "precision": tree.pop("precision", {}),
        }
    if dialect == "bridge":  # a recipe says the precision, `settings.json` which
        told = tree.pop("", {})
        tree["plugins"] = {"precision": "bf16_mixed" if told.get("bf16") else "fp32"}
        tree.setdefault("mixed_precision", {})["grad_reduce_in_fp32"] = (
            "grad_reduce_in_bf16" not in told
        )
        tree.setdefault("ddp", {}).setdefault("use_distributed_optimizer", False)
    name = "arguments.txt" if dialect == "args" else "run.json"
    text = "\n".join(lines) if dialect == "args" else json.dumps(tree)
    found = arguments(forms.read(Source(Path(name), text)), name)
    if dialect == "flagscale":
        assert found.what.endswith("FlagScale")
    _same(TABLE.read(found.given, found.off)[0], wanted)


@pytest.mark.parametrize("rule", TABLE.rules, ids=lambda rule: rule.given[0])
def test_what_megatron_refuses_is_found(rule: Rule) -> None:
    def args(conditions: tuple[str, ...]) -> dict[str, str]:
        pairs = (
            one.replace(">1", "=2").replace("~", "=").partition("=")
            for one in conditions
        )
        return {name: value for name, _, value in pairs}

    for one in rule.excludes or ("seed",):
        assert list(TABLE.violations(args((*rule.given, one))))
    assert rule.violation(args((*rule.given, *rule.needs))) is None


def test_a_file_that_megatron_does_not_start_with_is_refused() -> None:
    text = (
        "--num-layers 8 --pipeline-model-parallel-size 2 --micro-batch-size 1 "
        "--pipeline-model-parallel-layout Et*5|t*3L "
        "--num-virtual-stages-per-pipeline-rank 1"
    )
    form = forms.read(Source(Path("a.txt"), text))
    with pytest.raises(InstanceError, match="layout together with --num-v"):
        arguments(form, "a.txt")


@pytest.mark.parametrize("layers", [None, (17, 13), (10, 10, 10), (12, 9, 9)])
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("rule", ["none", "selective", "full"])
@pytest.mark.parametrize(
    "own",
    [
        "--decoder-last-pipeline-num-layers 14",
        "--num-virtual-stages-per-pipeline-rank 3",
        "--num-layers-per-virtual-pipeline-stage 5",
        "--pipeline-model-parallel-layout Et*13|t*17L",
        "--recompute-granularity full --recompute-method uniform",
    ],
)
def test_no_change_of_a_run_is_one_that_megatron_refuses(
    layers: tuple[int, ...] | None, runs: int, rule: Any, own: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.txt"
    path.write_text(
        "--num-layers 30 --pipeline-model-parallel-size 2 --micro-batch-size 1 "
        f"--global-batch-size 24 {own}"
    )
    module, asked = changes.recognise([path])
    search = changes._Search(module, asked, instance(24, layers=30), "")
    wanted = search.base._replace(
        pipeline_parallel=len(layers or (0, 0)),
        **{"interleave": runs, "recompute": rule, "layers": layers},
    )
    values = search.asked_for(wanted).values
    assert list(TABLE.violations(values, exclusions_only=True)) == []
    assert TABLE.read(values)[0].get("recompute", "none") == rule


def test_values_that_megatron_has_no_word_for_are_told() -> None:
    fields = {"rope_base": 1.5, "rope_linear": 1.5, "zero": 3, "precision": "bf16"}
    assert list(TABLE.unsupported(fields)) == [
        "a rope base that is no whole number, 1.5",
        "a rope scaling that is no whole number, 1.5",
        "precision bf16",
        "zero 3",
    ]


def test_precisions_are_those_that_bytes_are_known_of() -> None:
    choice = TABLE.entry("precision")
    assert isinstance(choice, Choice)
    assert [*choice.values] == [*LAUNCHED["megatron"]]


# --- files as they are exported --------------------------------------------------

MOE = {"experts": 8, "active_experts": 2, "expert_intermediate": 256, "heads": 8}
LATENT = {"key_rank": 64, "plain": 32, "rotary": 16, "value_dim": 32, "query_rank": 48}
FILES = {
    "megatron": "arguments.txt",
    "megatron_bridge": "settings.json",
    "flagscale": "train/plan.yaml",
}


def exported(
    target: str, data: Instance, folder: Path, plan: TrainingPlan = EVEN
) -> Path:
    """Return the file of a plan that has its settings."""
    exporting.write(folder, exporting.export_plan(target, data.on(target), plan))
    return folder / FILES[target]


def read(path: Path, data: Instance) -> Claim:
    module, asked = changes.recognise([path])
    return module.claimed(asked, data, "a0")


@pytest.mark.parametrize("target", FILES)
def test_a_plan_timed_in_fp8_is_exported_with_fp8(target: str, tmp_path: Path) -> None:
    tree = flat(calibrated(Random("fp8"), instance()))
    timed = {"framework": "megatron", "loss": "whole", "precision": "fp8"}
    tree["workload"]["costs"]["calibration"] |= timed
    for gpu in tree["cluster"]["gpus"].values():
        gpu["peaks"] = {kind: 900 for kind in ("fp16", "bf16", "fp8")}
    data = Instance.model_validate(tree, strict=False)
    path = exported(target, data, tmp_path)
    assert "fp8" in path.read_text()
    assert re.search("cross.entropy.loss.fusion", path.read_text())  # as it is weighed
    assert read(path, data).plan is not None
    with pytest.raises(InstanceError, match="products of layers: found fp8"):
        read(path, instance())


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        (MOE, "experts", 64),
        (MOE, "experts_per_token", 3),
        (MOE, "moe_intermediate", 512),
        (MOE | {"shared_experts": 1}, "shared_width", 512),
        ({"heads": 8, "kv_heads": 4}, "kv_heads", 2),
        ({"heads": 8, "kv_heads": 4, "head_dim": 96}, "head_dim", 128),
        *(
            ({"heads": 8, "latent": LATENT}, name, 40)
            for name in ("q_rank", "kv_rank", "plain_dim", "rotary_dim", "v_dim")
        ),
    ],
)
def test_another_model_than_the_exported_one_is_found(
    target: str, model: dict[str, Any], name: str, value: int, tmp_path: Path
) -> None:
    data = instance(**model)
    path, flag = exported(target, data, tmp_path), TABLE.name_of(name)
    assert read(path, data).plan is not None
    own = {key: made for made, key in BRIDGE.names.items()}
    names = {flag, flag.replace("-", "_"), own.get(flag, flag).replace("-", "_")}
    pattern = rf"\b({'|'.join(sorted(names))})(\"?:? )\d+"
    text, count = re.subn(pattern, rf"\g<1>\g<2>{value}", path.read_text())
    assert count == 1
    path.write_text(text)
    with pytest.raises(InstanceError, match=f"{flag}: found {value}"):
        read(path, data)


def test_precision_32_of_nemo_is_fp32(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "trainer: {precision: 32}\nmodel: {num_layers: 12, micro_batch_size: 1,\n"
        "  tensor_model_parallel_size: 1, pipeline_model_parallel_size: 1}\n"
    )
    (file,) = opened([path])
    made = arguments(file.form, file.place)
    assert TABLE.read(made.given, made.off)[0]["precision"] == "fp32"


@pytest.mark.parametrize("own", ["--disable-bias-linear", ""])
def test_more_tensor_parallelism_of_experts_divides_sequences(
    own: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.txt"
    path.write_text(
        "--num-layers 12 --micro-batch-size 1 --global-batch-size 32 --num-experts 8 "
        f"--moe-router-topk 2 --moe-ffn-hidden-size 256 {own}"
    )
    module, asked = changes.recognise([path])
    search = changes._Search(module, asked, instance(**MOE), "a0")
    wanted = search.base._replace(tensor_parallel=2)
    if not own:
        assert "--disable-bias-linear" in str(search.judged(wanted).why)
        return
    values = search.asked_for(wanted).values
    assert list(TABLE.violations(values)) == []
    assert "sequence-parallel" in values


def test_names_that_decide_are_read(tmp_path: Path) -> None:
    told = {"checkpoint-activations", "optimizer-cpu-offload"}
    told |= {"use-precision-aware-optimizer", "optimizer-offload-fraction"}
    assert told <= TABLE.names
    costs = {"offload": {}, "zero": 1, "precision": "bf16_mixed"}
    data = instance(costs=costs)
    assert not [x for x in read(exported("megatron", data, tmp_path), data).notes]


def test_fsdp_without_its_strategy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.txt"
    path.write_text(
        "--num-layers 12 --micro-batch-size 1 --global-batch-size 32 "
        "--use-megatron-fsdp"
    )
    with pytest.raises(InstanceError, match="sharding-strategy: found nothing"):
        read(path, instance())


def test_what_latent_attention_leaves_open_is_said(tmp_path: Path) -> None:
    data = instance(heads=8, latent=LATENT, mtp_layers=1)
    path = exported("megatron", data, tmp_path, UNEVEN)
    assert "YaRN" in path.read_text()
    assert {"--qk-layernorm", "--mtp-num-layers 1"} <= {*path.read_text().split("\n")}
    assert "t*2mL" in path.read_text()


def test_process_meshes_tell_the_degrees_and_stay(tmp_path: Path) -> None:
    data = instance()
    path = exported("flagscale", data, tmp_path)
    text = path.read_text().replace(
        "tensor_model_parallel_size: 2", "tensor_model_parallel_size: 1"
    )
    path.write_text(text)  # which FlagScale does not read beside meshes
    module, asked = changes.recognise([path])
    search = changes._Search(module, asked, data, "a0")
    assert (search.base.tensor_parallel, search.base.pipeline_parallel) == (2, 2)
    assert search.judged(search.base._replace(recompute="none")).us is not None
    for name, value in (("tensor_parallel", 4), ("layers", (7, 5))):
        why = search.judged(search.base._replace(**{name: value})).why
        assert "no single option changes it" in str(why)
