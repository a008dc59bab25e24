"""Tables on terminals of any width: no number is cut, and no column is lost."""

import io

from hypothesis import given
from hypothesis.strategies import booleans, data, integers, lists, sampled_from, text
from rich.console import Console

from hetopt.report import writers
from hetopt.report.sheet import Table

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
    lines = shown(writers.Columns(table), width)
    assert all(len(line) <= width for line in lines)
    for row in rows:
        for cell, each in zip(row, numeric, strict=True):
            if each:
                assert any(cell in line for line in lines)
            assert all(any(x in line for line in lines) for x in cell.split())
    for name in headings:
        assert all(any(x in line for line in lines) for x in name.split())
