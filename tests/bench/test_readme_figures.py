"""Figures of README.md and of benchmarks/README.md are those of files that are kept."""

import csv
import re
from collections.abc import Iterator
from statistics import mean

import metis
import run
from places import ROOT

import hetopt
from hetopt.bench import journal, suites
from hetopt.files import best

RESULTS = ROOT / "benchmarks" / "results"
INSTANCE = "hexiscale/setting-1-llama2-7b"
PLANS = "training_plan"


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


def test_how_many_proofs_other_code_can_check_is_told_alike() -> None:
    with (RESULTS / "leaderboard.csv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    certified = [row for row in rows if row["proof"] == "certificate"]
    optima = [row["proved"] for row in rows].count("True")
    both = [row["proved"] for row in certified].count("True")
    kept = {path.name for path in (ROOT / "instances").glob("*/*.best.json")
            if '"certificate":' in path.read_text("utf-8")}  # fmt: skip
    assert len(kept) == len(certified)
    for page, told in (
        ("README.md", f"{len(certified)} of the {len(rows)} bounds, and {both} of the "
         f"{optima} proved optima, have a certificate"),
        ("guide/README.md", f"Of the {len(rows)} bounds of the library "
         f"{len(certified)} have a certificate, but only {both} of the {optima}"),
        ("guide/questions.md", f"{optima} proved optima {both} have certificates"),
    ):  # fmt: skip
        assert told in text_of(page), page


def test_about_two_in_five_of_16_or_32_gpus_are_proved() -> None:
    """And all of up to 8."""
    with (RESULTS / "leaderboard.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["problem"] == PLANS]
    small = [row["proved"] for row in rows if int(row["size"]) <= 8]
    large = [row["proved"] for row in rows if int(row["size"]) in (16, 32)]
    assert len(small) > 30
    assert set(small) == {"True"}
    assert 0.35 < large.count("True") / len(large) < 0.45
    assert "clusters of up to 8 GPUs outright" in text_of("README.md")
    words = "two in five of the library's clusters of 16 or 32"
    assert words in text_of("README.md")
    assert "8 GPUs outright, about two in five of 16 or 32" in text_of("CHANGELOG.md")
    assert "16 or 32 about twice in five" in text_of("guide/questions.md")


def test_what_planners_lose_in_one_pipeline_is_that_of_the_rows() -> None:
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


def tables_of(page: str) -> Iterator[dict[str, list[list[str]]]]:
    """Yield the tables of a page of results: rows by their first cell."""
    text = (RESULTS / page).read_text(encoding="utf-8")
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        table: dict[str, list[list[str]]] = {}
        for line in block.splitlines():
            row = [cell.strip() for cell in line.strip("|").split("|")]
            table.setdefault(row[0], []).append(row)
        yield table


def test_what_predictions_miss_is_that_of_their_page() -> None:
    """Means over kinds are weighted by their runs."""

    def table(named: str) -> dict[str, list[list[str]]]:
        for found in tables_of("public_runs.md"):
            if any(named in row for rows in found.values() for row in rows):
                return found
        raise LookupError(named)

    kinds = {name: rows[0] for name, rows in table("dense, 16 bits").items()}
    left_out, layouts = table("a card left out"), table("regret, %")
    memory = table("died, refused")["all"][0]
    jobs = {row[1]: row[2] for row in table("59 jobs")["59 jobs"]}

    def missed(*names: str) -> str:
        rows = [kinds[name] for name in kinds if name.startswith(names)]
        runs = [int(row[1]) for row in rows]
        errors = (int(row[1]) * float(row[3]) for row in rows)
        return f"{sum(errors) / sum(runs):.1f}%"

    def one(cell: str) -> str:
        return f"{float(cell):.1f}%"

    runs, _, average, median, bias, _ = kinds["all public runs"][1:]
    groups = [row for rows in layouts.values() for row in rows if row[2].isdigit()]
    best_in = sum(not float(row[5]) for row in groups)
    refused = 100 * int(memory[7]) / int(memory[6])
    assert memory[4] == memory[5] == "9", "all that died are refused"
    told = [
        f"{runs} public runs on V100 to GB300, dense, MoE and adapters, 16 to 4 bits,",
        f"in a dozen programs, are predicted within {one(average)} on average (median",
        f"{one(median)}, bias {one(bias)}) by constants that saw no run of the same",
        f"set, model and card: dense ones in 16 bits within {missed('dense, 16')}, in",
        f"8 and 4 bits {missed('dense, fp8', 'dense, mxfp8', 'dense, nvfp4')}, MoE",
        f"{missed('MoE')}, LoRA and QLoRA {missed('LoRA', 'QLoRA')}, long contexts",
        f"{missed('long')}, V100 {missed('V100')}; with a whole card left out",
        f"{one(left_out['a card left out'][0][2])}. Of {len(groups)} groups of",
        "measured layouts the one that is picked is",
        f"{one(layouts['all'][0][4])} slower than the best on average, and the best is",
        f"among the first three in {best_in}. Once three runs of a job are given its",
        f"others are within {one(jobs['3'])} (one run: {one(jobs['1'])}, none:",
        f"{one(jobs['0'])}). Memory within {one(memory[2])}; the nine measured runs",
        f"that died are refused, and {refused:.1f}% of those that lived.",
    ]
    assert " ".join(told) in text_of("benchmarks/README.md")


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
