"""Figures of README.md and of benchmarks/README.md are those of files that are kept."""

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from statistics import mean
from types import ModuleType

import pytest
from places import ROOT

import hetopt
from hetopt.bench import best, journal, suites

RESULTS = ROOT / "benchmarks" / "results"
INSTANCE = "hexiscale/setting-1-llama2-7b"


def text_of(page: str) -> str:
    """Return a page with its lines joined."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def metis() -> Iterator[ModuleType]:
    """The script, which is no package."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield import_module("metis")
    finally:
        sys.path.pop(0)


def test_the_picture_has_the_plans_and_the_bound_that_are_kept() -> None:
    drawn = (RESULTS / "setting-1.svg").read_text(encoding="utf-8")
    told = re.findall(r"<!-- ([0-9.]+) s, ([0-9.]+)% above the bound -->", drawn)
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
    assert known is not None
    assert told["exact"] == f"{known.value('objective') / 1e6:.2f}"
    assert known.value("bound") == known.value("objective")
    for planner in ("megatron", "hexiscale"):
        made = hetopt.plan(name, planner, known=False)
        assert made.objective is not None
        assert told[planner] == f"{made.objective / 10**6:.2f}", planner
        gap = float(100 * (made.objective / known.value("bound") - 1))
        assert f"{gap:.2f}%" in page


def test_about_two_in_three_are_solved() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^(\d+) instances, (\d+) proved optimal", page, re.M)
    assert found is not None
    whole, proved = map(int, found.groups())
    assert 0.6 < proved / whole < 0.72
    assert "about two instances in three are solved" in text_of("README.md")


def test_what_planners_lose_in_one_pipeline_is_that_of_the_rows(
    metis: ModuleType,
) -> None:
    rows = [row for row in metis._rows() if row["section"] == "gaps"]
    gaps = {
        name: [
            100 * (row[name]["us"] / row[metis.ORACLE]["us"] - 1)
            for row in rows
            if row[name]["us"]
        ]
        for name in ("metis", "amp", "galvatron_like", "alpa_like")
    }
    others = {name: f"{mean(found):.0f}" for name, found in gaps.items()}
    assert (
        f"on {len(rows)} generated clusters `metis` is {mean(gaps['metis']):.1f}% "
        f"above the optimum on average and {max(gaps['metis']):.0f}% at worst, `amp` "
        f"{others['amp']}%, `galvatron_like` {others['galvatron_like']}%, `alpa_like` "
        f"{others['alpa_like']}% on average"
    ) in text_of("benchmarks/README.md")


def test_what_predictions_miss_is_that_of_their_page() -> None:
    """Rows of the page: runs, fitted, and left out: mean, median, bias, worst."""
    page = (RESULTS / "public_runs.md").read_text(encoding="utf-8")
    cells = {}
    for line in page.splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")]
        if len(row) == 7 and row[0] not in cells:
            cells[row[0]] = row[1:]
    runs, _, average, median, bias, _ = cells["all public runs"]
    readme, benchmarks = text_of("README.md"), text_of("benchmarks/README.md")
    figures = f"median {float(median):.1f}%, mean {float(average):.1f}%"
    assert f"{runs} public runs without a profile: {figures}" in readme
    assert f"{runs} public runs" in benchmarks
    told = f"{float(average):.1f}% on average (median {float(median):.1f}%, bias"
    assert f"{told} {float(bias):.1f}%)" in benchmarks
    for kind, words in (
        ("dense, 16 bits", "dense ones in 16 bits within"),
        ("long context", "long contexts"),
        ("V100", "V100"),
    ):
        assert f"{words} {float(cells[kind][2]):.1f}%" in benchmarks, kind


def test_what_our_own_runs_miss_is_that_of_their_pages() -> None:
    page = (RESULTS / "executor.md").read_text(encoding="utf-8")
    benchmarks = text_of("benchmarks/README.md")
    means = re.findall(
        r"errors: time ([0-9.]+)%, memory ([0-9.]+)%; \d+ of (\d+)", page
    )
    (first, second) = means
    assert f"{first[2]} runs of Llama models" in benchmarks
    assert f"within {first[0]}% on average, and memory within {first[1]}%" in benchmarks
    assert f"; {second[2]} on an H200" in benchmarks
    assert f"within {second[0]}% and {second[1]}%" in benchmarks
    fidelity = (RESULTS / "fidelity.md").read_text(encoding="utf-8")
    for told, page_has in (
        ("time within 5.2% on average", "error: mean error 5.2 %"),
        ("1.9% where micro-batches have 8", "8 sequences alone | 1.90 |"),
        ("memory within 2.5%", "(without that run the mean error is 2.5 %)"),
        ("on 8 to 512 A100 within 4.6%", "error: mean error 4.6 %"),
    ):
        assert told in benchmarks
        assert page_has in fidelity, told


def test_suites_of_the_table_are_those_of_the_file() -> None:
    """Every suite has a row, and there is no other."""
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    table = page.partition("| suite | what |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `([a-z_]+)` \|", table, re.M)
    assert sorted(named) == sorted(suites.known())
