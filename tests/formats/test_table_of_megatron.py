"""What the table of Megatron-LM writes is what it reads, in every dialect."""

import json
from pathlib import Path
from typing import Any

import pytest
from exporter_plans import instance
from hypothesis import given, settings
from hypothesis import strategies as st

from hetopt.errors import InstanceError
from hetopt.formats.importing import changes, forms
from hetopt.formats.importing.current import cut
from hetopt.formats.megatron.arguments import arguments
from hetopt.formats.runs.source import Source
from hetopt.problems.training_plan.fields import fields_of
from hetopt.trainers.megatron import TABLE
from hetopt.trainers.megatron.relatives import BRIDGE, FLAGSCALE
from hetopt.trainers.megatron.stages import Division
from hetopt.trainers.table import Choice, Fields, Row, Rule, text_of

#: Fields that no name tells where they are as here, or that another tells.
_APART = {"longest", "stage_layers", "vp", "division"}


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
        "recompute": st.sampled_from(["none", "selective", "full"]),
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
    model = draw(_models()) | {"mtp_layers": mtp}
    model["dense_layers"] = min(model.get("dense_layers", 0), sum(stages) - mtp)
    data = instance(costs=draw(_COSTS), **model, layers=sum(stages))
    degrees = st.sampled_from([1, 2, 4])
    experts = draw(degrees) if data.model.experts else 1
    return {
        **fields_of(data, tp := draw(degrees)),
        **(draw(_TOLD) if draw(st.booleans()) else {}),
        **{"tp": tp, "pp": len(stages), "cp": draw(degrees), "mbs": draw(degrees)},
        **{"ep": experts, "etp": 1 if experts > 1 else None},
        **{"vp": runs, "stage_layers": tuple(stages)},
        "products": draw(st.sampled_from(["bf16", "fp8", "mxfp8", "nvfp4"])),
        "hosted": draw(st.booleans()),
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
    found = cut([*parts[:-1], parts[-1] - mtp], wanted["pp"], whole - mtp, "")
    *first, last = wanted["stage_layers"]
    assert found == ((*first, last - mtp), wanted["vp"])


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
        tree["mixed_precision"] = {
            "grad_reduce_in_fp32": "grad_reduce_in_bf16" not in told
        }
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
        pairs = (one.replace(">1", "=2").partition("=") for one in conditions)
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
