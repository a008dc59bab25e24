"""The table of gaps says what the committed rows say."""

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from places import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "gaps"


@pytest.fixture(scope="module")
def table() -> ModuleType:
    """The script, which is no package."""
    spec = spec_from_file_location("_gap_table", ROOT / "benchmarks" / "_gap_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HEADER = {
    "suite": "gaps",
    "machine": {"cores": 2},
    "limits": {"time_limit_s": [30.0, 120.0]},
}


def row(instance: str, method: str, objective: int | None, bound: int) -> dict:
    found = {
        **{"key": f"{instance} {method}", "kind": "solve", "instance": instance},
        **{"method": method, "seed": 0, "problem": "training_plan", "size": 40},
        **{"digest": instance, "sense": "minimise", "bound": bound, "seconds": {}},
        "status": "feasible",
    }
    if objective is None:
        return found | {"status": "timeout"}
    return found | {"objective": objective}


def test_a_line_of_the_table_has_the_strongest_bound_and_every_gap(
    table: ModuleType, tmp_path: Path
) -> None:
    rows = [
        row("hexiscale/one", "exact", 31_500_000, 30_000_000),
        row("hexiscale/one", "quick", 45_000_000, 20_000_000),
        row("hexiscale/two", "quick", None, 10_000_000),
    ]
    lines = "\n".join(map(json.dumps, [HEADER, *rows])) + "\n"
    (tmp_path / "rows.jsonl").write_text(lines)
    made = table.made(tmp_path).splitlines()
    assert made[-4:] == [
        "| instance | GPUs | no plan is faster than | quick | exact |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| one | 40 | 30.00 s | 45.00 s, 50.0% | 31.50 s, 5.0% |",
        "| two | 40 | 10.00 s | timeout | – |",
    ]
    assert "on 2 cores" in made[0]


def test_only_what_is_between_the_marks_is_replaced(table: ModuleType) -> None:
    text = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    new = table.replaced(text, "new")
    assert new == f"before\n{table.BEGIN}\nnew\n{table.END}\nafter\n"
    assert table.replaced(new, "new") == new
    with pytest.raises(ValueError, match="expected both"):
        table.replaced("no marks", "new")


def test_the_page_has_its_marks_and_what_was_committed(table: ModuleType) -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert text.count(table.BEGIN) == text.count(table.END) == 1
    if RESULTS.exists():
        remedy = "python benchmarks/run.py --gaps"
        assert table.replaced(text, table.made(RESULTS)) == text, remedy
