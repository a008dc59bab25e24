"""Rows of runs on nodes that are not alike are judged as their plans."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from places import ROOT

import hetopt
from hetopt.api import mixed
from hetopt.costs.constants import shipped
from hetopt.costs.runs.prediction import Prediction
from hetopt.costs.runs.rows import Run

MODEL = {
    **{"model": "large", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8},
    **{"intermediate": 14336, "gated": True, "vocabulary": 32000, "seq": 4096},
    **{"framework": "PyTorch", "precision": "bf16", "recompute": "none", "gbs": 16},
}


def unequal(**changes: Any) -> dict[str, Any]:
    """A row of a pipeline over both kinds of nodes, beside one on the fast one."""

    def stage(layers: list[int], node: str, *gpus: int) -> dict[str, Any]:
        group = {"gpus": [f"{node}:{i}" for i in gpus], "samples": 1}
        return {"layers": layers, "replicas": [group]}

    blended = [stage([0, 20], "new", 0, 1, 2, 3), stage([20, 32], "node1", 0, 1, 2, 3)]
    alone = [stage([0, 32], "new", 4, 5, 6, 7)]
    pipelines = [
        {"micro_batches": n, "micro_batch_size": 1, "stages": stages}
        for n, stages in ((6, blended), (10, alone))
    ]
    nodes = [
        {"name": "new", "gpu": "h100_80gb", "gpus": 8},
        {"gpu": "a100_80gb", "gpus": 4},
    ]
    return {**MODEL, "nodes": nodes, "plan": {"pipelines": pipelines}, **changes}


def predicted(row: dict[str, Any]) -> Prediction:
    (found,) = hetopt.predict([Run.model_validate(row)]).rows
    return found


@pytest.mark.parametrize("changes", [{}, {"recompute": "full"}, {"zero": 1}])
def test_a_row_takes_what_check_says_of_its_plan(changes: dict[str, Any]) -> None:
    row = unequal(**changes)
    run, found = Run.model_validate(row), predicted(row)
    assert run.plan is not None
    made = mixed.instance_of(run, run.plan, shipped.constants())
    # As it is read from a file, by `hetopt check`.
    written = json.loads(made.model_dump_json())
    parts = hetopt.check({"plan": row["plan"]}, written).parts
    assert found.iteration_s == parts["iteration_us"] / 1e6
    assert (found.low_s, found.high_s) == (parts["low_s"], parts["high_s"])
    assert (found.fit, found.fits) == (parts["fit"], True)
    most = max(parts["peak_memory_mib"].values()) / 1024
    assert most < found.peak_gib < 1.5 * most  # with what no plan weighs


def test_a_row_takes_as_long_as_between_its_cards_alone() -> None:
    seconds = []
    for gpu in ("h100_80gb", None, "a100_80gb"):
        row = unequal()
        if gpu is not None:
            row["nodes"] = [{**node, "gpu": gpu} for node in row["nodes"]]
        found = predicted(row)
        assert found.iteration_s is not None, found.not_modelled
        seconds.append(found.iteration_s)
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[2]


def test_constants_are_those_that_are_told() -> None:
    known = dict(shipped.constants())
    known["pace"] = known["pace"]._replace(value=2 * known["pace"].value)
    run = Run.model_validate(unequal())
    assert run.plan is not None
    slow, usual = mixed.prediction(0, run, run.plan, known), predicted(unequal())
    assert slow.iteration_s > usual.iteration_s


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"plan": None}, "plan missing: give it, as the nodes are not alike"),
        ({"nodes": None}, "nodes missing: give the list of those that the plan is on"),
        ({"gbs": 15}, "16 sequences, expected 15"),
        ({"nodes": unequal()["nodes"][:1]}, "unknown_gpu"),
        ({"task": "lora"}, "adapters beside a plan"),
        ({"gpu": None, "nodes": [{"gpu": "x", "gpus": 8}]}, "card 'x' is not in the"),
    ],
)
def test_a_row_without_a_plan_that_can_be_judged_says_why(
    changes: dict[str, Any], why: str
) -> None:
    found = predicted(unequal(**changes))
    assert found.iteration_s is None
    assert why in (found.not_modelled or "")


def test_tables_of_runs_have_the_plan_as_a_cell(tmp_path: Path) -> None:
    row = unequal(tokens_per_s_gpu=1000, gbs=None)
    table = [json.dumps(v) if isinstance(v, dict | list) else v for v in row.values()]
    lines = "\t".join(row), "\t".join("" if v is None else str(v) for v in table)
    (tmp_path / "runs.tsv").write_text("\n".join(lines))
    done = typed("predict", tmp_path / "runs.tsv")
    assert done.exit_code == 0, done.output
    assert "8 × h100_80gb + 4 × a100_80gb" in " ".join(done.output.split())


def test_the_row_of_the_page_is_one_that_is_predicted() -> None:
    page = (ROOT / "hetopt" / "formats" / "README.md").read_text("utf-8")
    (block,) = re.findall(r"```json\n(\{[^`]*\"nodes\": \[[^`]*)```", page)
    assert (predicted(json.loads(block)).iteration_s or 0) > 1
