"""The page of the formulations asks every problem of one instance, and it runs."""

import re
import shlex

import pytest
from places import ROOT

import hetopt
from hetopt import problems

PAGE = (ROOT / "formulations" / "README.md").read_text(encoding="utf-8")
#: Queues are asked by `schedule`, training plans by `plan` and `compare`, and
#: post-training of an instance that generates.
ASKED_ELSEWHERE = {"job_scheduling", "post_training", "training_plan"}


def commands() -> list[list[str]]:
    """The words of every command that the page prints, in order."""
    shown = "\n".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S))
    return [shlex.split(line)[1:] for line in shown.splitlines() if line]


def test_every_problem_is_asked_of_one_instance() -> None:
    asked = [words[words.index("--problem") + 1] for words in commands()[1:-1]]
    assert sorted(asked) == sorted({*problems.names()} - ASKED_ELSEWHERE)
    assert {words[0] for words in commands()} == {"plan", "solve", "compare"}
    assert len({words[1] for words in commands()}) == 1


def table() -> dict[str, tuple[str, dict[str, str]]]:
    """Return the proved optimum of each problem, and the gap of each rule, as told."""
    rows = re.findall(r"^\| `([a-z_]+)` \| ([^|]+) \| (`.*) \|$", PAGE, re.M)
    found = {}
    for problem, optimum, told in rows:
        if problem in problems.names() and "%" in told:
            gaps: dict[str, str] = {}
            for group, gap in re.findall(r"((?:`[a-z_]+`[, ]*)+)([0-9.]+)%", told):
                gaps |= dict.fromkeys(re.findall(r"`([a-z_]+)`", group), gap)
            found[problem] = optimum, gaps
    return found


LONG = {"one_pipeline": pytest.mark.slow}
ASKED_HERE = sorted({*problems.names()} - ASKED_ELSEWHERE)


@pytest.mark.parametrize(
    "problem", [pytest.param(name, marks=LONG.get(name, ())) for name in ASKED_HERE]
)
def test_the_table_has_the_gaps_of_today(problem: str) -> None:
    """All end by themselves in a few seconds, so that no limit is what is told."""
    optimum, told = table()[problem]
    name = commands()[0][1]
    plan = hetopt.plan(name, "autohet", known=False)
    prices = {"RTX3080Ti": 0.2, "RTX3090": 0.25, "RTX4090": 0.4}
    options = {
        "device_grouping": {"tensor_parallel": 2},
        "layer_partition": {"plan": plan, "pipeline": 0},
        "provisioning": {"deadline_s": 60, "usd_per_hour": prices},
        "recovery": {"plan": plan, "lost": ["node4"]},
    }
    report = hetopt.compare(
        name, problem=problem, options=options.get(problem, {}), statements=()
    )
    *rules, exact = report.rows
    assert exact.result.status.value == "optimal"
    number, _, unit = optimum.partition(" ")
    least = float(exact.result.objective) / (1e6 if unit == "s" else 1)
    assert least == pytest.approx(float(number.replace(",", "")), rel=1e-3)
    assert set(told) == {row.method for row in rules}
    for row in rules:
        gap = told[row.method]
        half = 0.5 / 10 ** len(gap.partition(".")[2])
        assert abs(100 * row.gap_to_bound - float(gap)) <= half, row.method
