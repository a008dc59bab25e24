"""Runs on nodes that are not alike: beside symmetric rows, and what they refuse."""

import copy
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from places import ROOT
from typer.testing import CliRunner

from hetopt import api
from hetopt.cli import app
from hetopt.costs.constants import Table, plain, shipped
from hetopt.costs.formulas import iteration as formulas
from hetopt.costs.formulas.step import LayerTimes
from hetopt.costs.runs import Run, predictions
from hetopt.costs.runs.mixed import Mixed
from hetopt.costs.runs.reading import described
from hetopt.formats.assembling import Listed, assembly
from hetopt.problems import training_plan
from hetopt.schema import Instance
from hetopt.text.complaints import validated

LAYER_TERMS = {*LayerTimes._fields, "head"}
C = Table(plain(shipped.constants()))
MODEL = {
    **{"model": "large", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8},
    **{"intermediate": 14336, "gated": True, "vocabulary": 32000, "seq": 4096},
    **{"framework": "Megatron-LM 2024", "precision": "bf16", "recompute": "none"},
}


def symmetric(random: Random) -> dict[str, Any]:
    """A row whose tensor-parallel groups, pipelines and replicas are all alike."""
    tp, pp, dp = random.choice([(8, 1, 2), (8, 2, 1), (8, 2, 2), (4, 2, 2), (8, 4, 1)])
    mbs, ga = random.choice((1, 2)), random.choice((1, 8))
    return {
        **MODEL,
        **{"gpu": random.choice(("a100_80gb", "h100_80gb")), "gpus": tp * pp * dp},
        **{"tp": tp, "pp": pp, "dp": dp, "mbs": mbs, "ga": ga, "gbs": mbs * ga * dp},
        "zero": random.choice((0, 1)),
        "recompute": random.choice(("none", "full", "selective: core_attn")),
        "precision": random.choice(("bf16", "bf16 mixed")),
        "framework": random.choice(("Megatron-LM 2024", "PyTorch")),
    }


def listed(row: dict[str, Any], size: int = 8) -> dict[str, Any]:
    """The row with nodes and plan in place of degrees; nodes have 8 GPUs."""
    tp, pp, dp = row["tp"], row["pp"], row["dp"]
    layers = row["layers"] // pp
    pipelines = []
    for d in range(dp):
        stages = []
        for j in range(pp):
            first = (j * dp + d) * tp  # replicas beside each other, as Megatron has it
            ids = [divmod(first + i, size) for i in range(tp)]
            gpus = [f"node{node}:{index}" for node, index in ids]
            replica = {"gpus": gpus, "samples": row["mbs"]}
            span = [j * layers, (j + 1) * layers]
            stages.append({"layers": span, "replicas": [replica]})
        pipelines.append(
            {
                "micro_batches": row["ga"],
                "micro_batch_size": row["mbs"],
                "stages": stages,
            }
        )
    nodes = [{"gpu": row["gpu"], "gpus": size}] * -(-tp * pp * dp // size)
    degrees = dict.fromkeys(("tp", "pp", "dp", "mbs", "ga", "gpu"))
    return {**row, **degrees, "nodes": nodes, "plan": {"pipelines": pipelines}}


@pytest.mark.parametrize("seed", range(24))
def test_equal_pipelines_take_what_the_symmetric_row_takes(seed: int) -> None:
    row = symmetric(Random(seed))
    one = described(Run.model_validate(row))
    other = described(Run.model_validate(listed(row)))
    told, found = one.terms(C), other.terms(C)
    assert sum(found.values()) == pytest.approx(sum(told.values()), rel=1e-9)
    assert {n for n, x in found.items() if x} == {n for n, x in told.items() if x}
    for name, seconds in told.items():
        assert found[name] == pytest.approx(seconds, rel=1e-9, abs=1e-12), name
    assert sum(other.peak(C).values()) == pytest.approx(sum(one.peak(C).values()))
    assert other.died(C) == pytest.approx(one.died(C))


# --- nodes of two cards -----------------------------------------------------------

FIELDS = {**MODEL, "gbs": 16, "framework": "PyTorch", "zero": 0}


def unequal(**changes: Any) -> dict[str, Any]:
    """A row of a pipeline over both kinds of nodes, beside one on the fast one."""

    def stage(layers: list[int], node: str, *gpus: int) -> dict[str, Any]:
        group = {"gpus": [f"{node}:{i}" for i in gpus], "samples": 1}
        return {"layers": layers, "replicas": [group]}

    blended = [stage([0, 20], "new", 0, 1, 2, 3), stage([20, 32], "old", 0, 1, 2, 3)]
    alone = [stage([0, 32], "new", 4, 5, 6, 7)]
    pipelines = [
        {"micro_batches": n, "micro_batch_size": 1, "stages": stages}
        for n, stages in ((6, blended), (10, alone))
    ]
    nodes = [
        {"name": "new", "gpu": "h100_80gb", "gpus": 8},
        {"name": "old", "gpu": "a100_80gb", "gpus": 4},
    ]
    return {**FIELDS, "nodes": nodes, "plan": {"pipelines": pipelines}, **changes}


def seconds(row: dict[str, Any]) -> float:
    (found,) = predictions([Run.model_validate(row)])
    assert found.iteration_s is not None, found.not_modelled
    return found.iteration_s


def test_a_run_takes_as_long_as_between_its_cards_alone() -> None:
    times = []
    for gpu in ("h100_80gb", None, "a100_80gb"):
        row = unequal()
        if gpu is not None:
            row["nodes"] = [{**node, "gpu": gpu} for node in row["nodes"]]
        times.append(sum(described(Run.model_validate(row)).terms(C).values()))
    assert times == sorted(times)
    assert times[0] < times[2]


def test_stages_take_what_the_judge_of_plans_says(tmp_path: Path) -> None:
    """The tables of the assembled instance, rounded, are the same layers' times."""
    config = {
        **{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096},
        **{"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000},
        **{"intermediate_size": 14336, "tie_word_embeddings": False},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    hosts = "new slots=8 type=H100-80GB-SXM5\nold slots=4 type=A100-80GB-SXM4\n"
    (tmp_path / "hosts").write_text(hosts)
    made = assembly(
        tmp_path / "config.json",
        Listed("hostfile", [tmp_path / "hosts"]),
        ["inter_gbytes_per_s=25", "framework=torch", "kernel=flash2", "recompute=none"],
        {"sequence_length": 4096, "global_batch": 16, "micro_batch_sizes": [1]},
    ).document
    instance = validated(Instance, made, "made")
    row = unequal(attention="flash2")
    run = Run.model_validate(row)
    assert run.plan is not None
    judged = training_plan.evaluate(instance, run.plan).parts["stages"]
    found = described(run)
    assert isinstance(found, Mixed)
    for pipeline, rows in zip(found.pipelines, judged, strict=True):
        for j, (stage, told) in enumerate(zip(pipeline.stages, rows, strict=True)):
            last = j == len(rows) - 1
            one = pipeline._replace(micro_batches=1, stages=(stage,))
            terms = formulas.terms(C, found.architecture, (one,))
            head = 0 if last else terms["head"]  # a stage alone has one
            passes = sum(x for n, x in terms.items() if n in LAYER_TERMS) - head
            slack = stage.last - stage.first + 1  # each layer is rounded up
            assert told["compute_us"] - slack <= passes * 1e6 <= told["compute_us"]


def test_a_system_of_two_cards_learns_from_its_own_runs() -> None:
    rows = [unequal(seq=seq) for seq in (2048, 4096, 8192)]
    runs = [Run.model_validate({**x, "iteration_s": 1.7 * seconds(x)}) for x in rows]
    found = api.calibrate([runs[:2]])
    after = api.predict([runs[2]]).rows[0].iteration_s
    assert after == pytest.approx(seconds(rows[2]))  # shipped constants stay
    learnt = predictions([runs[2]], found.constants)[0].iteration_s
    assert learnt is not None
    assert learnt == pytest.approx(runs[2].iteration_s, rel=0.1)
    assert "system@torch/A100-80GB-SXM4+H100-80GB-SXM5" in found.moved


def test_tokens_a_second_tell_the_time_of_a_plan() -> None:
    run = Run.model_validate(unequal(gbs=None, tokens_per_s_gpu=1000))
    assert run.tokens == 16 * 4096
    assert run.measured_s == pytest.approx(16 * 4096 / (12 * 1000))


def without_old(row: dict[str, Any]) -> None:
    row["nodes"] = row["nodes"][:1]


def one_gpu_twice(row: dict[str, Any]) -> None:
    row["plan"]["pipelines"][1]["stages"][0]["replicas"][0]["gpus"][0] = "new:0"


def a_layer_short(row: dict[str, Any]) -> None:
    row["plan"]["pipelines"][0]["stages"][0]["layers"] = [0, 19]


def two_samples(row: dict[str, Any]) -> None:
    row["plan"]["pipelines"][0]["stages"][0]["replicas"][0]["samples"] = 2


def a_ninth_gpu(row: dict[str, Any]) -> None:
    row["plan"]["pipelines"][1]["stages"][0]["replicas"][0]["gpus"][0] = "new:8"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda row: row.update(nodes=None), "nodes missing"),
        (lambda row: row.update(nodes=2), "nodes missing"),
        (
            lambda row: row.update(plan=None),
            "plan missing: give it, as nodes are not alike",
        ),
        (lambda row: row.update(gbs=15), "trains 16 sequences, gbs is 15"),
        (without_old, "the plan has old:0, nodes are new"),
        (one_gpu_twice, "the plan has new:0 2 times"),
        (a_layer_short, "stages are not layers 0 to 32"),
        (two_samples, "replicas do not share the 1 sequences"),
        (a_ninth_gpu, "the plan has new:8, new has 8 GPUs"),
        (lambda row: row["plan"].update(interleave=2), "interleave 2 on nodes that"),
        (lambda row: row["nodes"].append(row["nodes"][0]), "two nodes are named new"),
        (lambda row: row["nodes"][0].update(gpu="x"), "card 'x' is not in the"),
    ],
)
def test_a_plan_that_contradicts_itself_is_not_modelled(change: Any, why: str) -> None:
    row = copy.deepcopy(unequal())
    change(row)
    (found,) = predictions([Run.model_validate(row)])
    assert found.iteration_s is None
    assert why in (found.not_modelled or "")


def test_equal_nodes_need_no_plan() -> None:
    row = {**MODEL, "tp": 8, "dp": 2, "pp": 1, "mbs": 1, "gbs": 16}
    nodes = [{"gpu": "a100_80gb", "gpus": 8}] * 2
    counted = {**row, "gpu": "a100_80gb", "gpus": 16, "nodes": 2}
    assert seconds({**row, "nodes": nodes}) == pytest.approx(seconds(counted))


def test_the_row_of_the_page_is_one_that_is_predicted() -> None:
    page = (ROOT / "hetopt" / "formats" / "README.md").read_text("utf-8")
    (block,) = re.findall(r"```json\n(\{[^`]*\"nodes\": \[[^`]*)```", page)
    assert seconds(json.loads(block)) > 1


def test_a_table_of_runs_counts_the_cards_of_unlike_nodes(tmp_path: Path) -> None:
    path = _written(tmp_path, [unequal()])
    answer = CliRunner().invoke(app, ["predict", str(path)])
    assert answer.exit_code == 0, answer.output
    assert "8 x h100_80gb + 4 x a100_80gb" in " ".join(answer.output.split())


def _written(folder: Path, rows: list[Any]) -> Path:
    path = folder / "rows.json"
    path.write_text(json.dumps(rows))
    return path
