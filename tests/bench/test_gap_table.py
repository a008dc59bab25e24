"""The table of gaps says what the committed rows say."""

import json

import _gap_table as table
from places import ROOT

from hetopt import files
from hetopt.bench import journal
from hetopt.files import best
from hetopt.problems import training_plan

RESULTS = ROOT / "benchmarks" / "results" / "gaps"


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
