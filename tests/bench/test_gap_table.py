"""The table of gaps says what the committed rows say."""

import json
from pathlib import Path

import _gap_table as table
from places import ROOT

from hetopt import files
from hetopt.bench import journal
from hetopt.files import best
from hetopt.problems import training_plan

RESULTS = ROOT / "benchmarks" / "results" / "gaps"


HEADER = {
    "suite": "gaps",
    "machine": {"cores": 2},
    "limits": {"time_limit_s": [30.0, 120.0]},
}


def row(instance: str, method: str, objective: int | None) -> dict:
    found = {
        **{"key": f"{instance} {method}", "instance": instance},
        **{"method": method, "seed": 0, "problem": "training_plan", "size": 40},
        **{"digest": instance, "sense": "minimise", "bound": 1, "seconds": {}},
        "status": "feasible",
    }
    if objective is None:
        return found | {"status": "timeout"}
    return found | {"objective": objective}


def test_a_line_has_every_gap_to_the_bound_of_the_library(tmp_path: Path) -> None:
    first, second = "hexiscale/setting-1-llama2-7b", "hexiscale/case-study"
    known = table.best.known(first)
    assert known is not None
    bound = int(known.value("bound"))
    rows = [
        row(first, "quick", 3 * bound),
        row(first, "slow", bound * 5 // 4),
        row(second, "quick", None),
    ]
    lines = "\n".join(map(json.dumps, [HEADER, *rows])) + "\n"
    (tmp_path / "rows.jsonl").write_text(lines)
    *head, columns, _, one, two = table.made(tmp_path).splitlines()
    assert columns == (
        "| instance | GPUs | quick | slow | best known | no plan is faster than |"
    )
    cells = [cell.strip() for cell in one.split("|")[1:-1]]
    assert cells[:2] == ["setting-1-llama2-7b", "40"]
    assert [cell.rpartition(", ")[2] for cell in cells[2:4]] == ["200%", "25.0%"]
    objective = int(known.value("objective"))
    assert cells[4] == f"{objective / 1e6:.2f} s, {100 * (objective / bound - 1):.1f}%"
    assert cells[5] == f"{bound / 1e6:.2f} s"
    assert "| timeout | – |" in two
    assert "on 2 cores" in head[0]


def test_the_page_has_its_marks_and_what_was_committed() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert text.count(table.BEGIN) == text.count(table.END) == 1
    if RESULTS.exists():
        remedy = "python benchmarks/run.py --gaps"
        assert table.replaced(text, table.made(RESULTS)) == text, remedy


def test_every_figure_of_the_table_has_a_plan_or_a_certificate_that_is_kept() -> None:
    """Whoever doubts a row has the plan to judge, and the bound's certificate."""
    _, rows = journal.read(RESULTS)
    for one in rows:
        _, data, plan = files.load_plan(RESULTS / one["plan_file"])
        judged = training_plan.evaluate(data, plan)
        assert judged.valid, one["key"]
        assert judged.objective == one["objective"], one["key"]
    for name in {one["instance"] for one in rows}:
        kept = json.loads(best.place(name).read_text(encoding="utf-8"))
        assert kept["plan"], name
        assert kept["certificate"], name
