"""Figures of README.md and of benchmarks/README.md are those of files that are kept."""

import re

import run
from places import ROOT

import hetopt
from hetopt.bench import journal, suites
from hetopt.files import best

RESULTS = ROOT / "benchmarks" / "results"
INSTANCE = "hexiscale/setting-1-llama2-7b"


def text_of(page: str) -> str:
    """Return a page with its lines joined."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def test_the_picture_has_the_plans_and_the_bound_that_are_kept() -> None:
    drawn = (RESULTS / "setting-1.svg").read_text(encoding="utf-8")
    told = re.findall(r"<!-- +([0-9.]+) s, ([0-9.]+)% above the bound -->", drawn)
    known = best.known(INSTANCE)
    assert known is not None
    bound, objective = (known.value(name) for name in ("bound", "objective"))
    rows = journal.read(RESULTS / "gaps")[1]
    plans = [row["objective"] for row in rows if row["instance"] == INSTANCE]
    expected = {
        (f"{plan / 1e6:.2f}", f"{float(100 * (plan / bound - 1)):.2f}")
        for plan in (*plans, objective)
    }
    assert set(told) == expected
    assert f"no plan is faster than {bound / 1e6:.2f} s: proved" in drawn
    page = text_of("README.md")
    assert "the best plan is within 0.1% of what is proved" in page
    assert objective <= bound * 1.001
    assert max(plans) > 2 * bound, "more than twice as long as need be"


def test_the_first_example_has_the_figures_of_today() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    name = "autohet/a100-h20-4x4-gpt3-6.7b"
    told = dict(re.findall(r"^(megatron|hexiscale|exact) +([0-9.]+) s ", page, re.M))
    known = best.known(name)
    assert told["exact"] == f"{known.value('objective') / 1e6:.2f}"
    assert known.value("bound") == known.value("objective")
    for planner in ("megatron", "hexiscale"):
        made = hetopt.plan(name, planner, known=False)
        assert told[planner] == f"{made.objective / 10**6:.2f}", planner
        gap = float(100 * (made.objective / known.value("bound") - 1))
        assert f"{gap:.2f}%" in page


def test_what_statements_prove_is_told_alike_on_both_pages() -> None:
    page = (ROOT / "formulations" / "README.md").read_text(encoding="utf-8")
    assert run.PROVED.search(page) is not None
    assert run.with_proved(page) == page
    other = re.sub(r"12 GPUs(, [0-9.]+ s)", r"10 GPUs\1", page)
    assert run.with_proved(other) == page != other


def test_suites_of_the_table_are_those_of_the_file() -> None:
    """Every suite has a row, and there is no other."""
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    table = page.partition("| suite | what |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `([a-z_]+)` \|", table, re.M)
    assert sorted(named) == sorted(suites.known())
