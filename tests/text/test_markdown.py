"""Cells of Markdown tables: nothing in them ends a cell or a line."""

import re

from hypothesis import given
from hypothesis import strategies as st

from hetopt.text import markdown


def read(line: str) -> list[str]:
    """The cells of a line, as a reader of Markdown divides it."""
    parts = re.split(r"(?<!\\)\|", line)
    assert parts[0] == parts[-1] == ""
    return [part.strip().replace("\\|", "|") for part in parts[1:-1]]


@given(st.lists(st.text("a|\n `<"), min_size=1, max_size=4))
def test_a_line_has_the_cells_that_it_is_given(texts: list[str]) -> None:
    line = markdown.line(map(markdown.cell, texts))
    assert "\n" not in line
    assert read(line) == [" ".join(text.split()) for text in texts]


@given(st.text("a|<>[]*_`\\"))
def test_what_is_escaped_has_no_mark_of_its_own(text: str) -> None:
    told = markdown.escaped(text)
    assert re.sub(r"\\(.)", r"\1", told) == text
    assert not re.search(r"[|<>\[\]*_`]", re.sub(r"\\.", "", told))
