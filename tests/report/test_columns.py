"""Tables on terminals of any width: no number is cut, and no column is lost."""

import io

import pytest
from hypothesis import given
from hypothesis.strategies import booleans, data, integers, lists, sampled_from, text
from places import INSTANCES
from rich.console import Console

import hetopt
from hetopt.report import explanation, results, writers
from hetopt.report.sheet import Table

PLAN = INSTANCES / "hexiscale" / "case-study-hexiscale.plan.json"
_LETTERS = "abcdefgh-–"


def shown(renderable: object, width: int) -> list[str]:
    """Return the lines that a terminal of that width shows."""
    screen = Console(width=width, file=io.StringIO(), markup=False, highlight=False)
    screen.print(renderable)
    return screen.file.getvalue().split("\n")  # type: ignore[attr-defined]


@given(data=data(), width=integers(40, 160))
def test_every_number_is_whole_and_every_word_is_there(
    data: object, width: int
) -> None:
    draw = data.draw  # type: ignore[attr-defined]
    numeric = draw(lists(booleans(), min_size=1, max_size=14))
    word = text(_LETTERS, min_size=1, max_size=14)
    phrase = lists(word, min_size=1, max_size=4).map(" ".join)
    number = sampled_from(["0.569 ms", "1,431.5 s", "–", "128.81 GiB", "-2307.47%", ""])
    title = text(_LETTERS[:8], min_size=1, max_size=14)  # which folds at hyphens
    headings = [f"h{i} {draw(title)}" for i in range(len(numeric))]
    rows = [
        [draw(number if each else phrase) for each in numeric]
        for _ in range(draw(integers(1, 4)))
    ]
    texts = [name for name, each in zip(headings, numeric, strict=True) if not each]
    table = Table.of(headings, rows, texts=texts)
    lines = shown(writers.grid(table), width)
    assert all(len(line) <= width for line in lines)
    for row in rows:
        for cell, each in zip(row, numeric, strict=True):
            if each:
                assert any(cell in line for line in lines)
            assert all(any(x in line for line in lines) for x in cell.split())
    for name in headings:
        assert all(any(x in line for line in lines) for x in name.split())


@pytest.mark.parametrize("width", [60, 80, 200])
def test_an_explanation_names_its_rows_at_any_width(width: int) -> None:
    found = hetopt.explain(PLAN, limits=0)
    for section in explanation.sheet(found).sections[1:]:
        if section.table is None:
            continue
        lines = shown(writers.grid(section.table), width)
        whole = " ".join(" ".join(lines).split())
        assert all(len(line) <= width for line in lines)
        for row in section.table.rows:
            for cell in row:
                assert all(part in whole for part in cell.text.split())


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_plan_names_its_gpus_at_any_width(width: int) -> None:
    result = hetopt.plan("tiny/two-nodes", "megatron", limits=1)
    told = writers.terminal(results.sheet(result))
    lines = [line for one in told for line in shown(one, width)]
    whole = " ".join(lines)
    assert all(node.gpu in whole for node in result.data.planned_cluster.nodes)
    assert all(len(line) <= width for line in lines)
