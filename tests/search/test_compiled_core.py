"""The compiled core finds what trying all cuts and shares finds."""

from array import array
from collections.abc import Sequence
from itertools import accumulate, combinations, pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples

from hetopt._kernels import core
from hetopt.search import balancing
from hetopt.search.balancing import UnlikeRow, _Row, best_cuts

rows_of_stages = st.lists(
    st.builds(
        _Row,
        each=st.integers(1, 10**7),
        fixed=st.integers(0, 10**7),
        cap=st.integers(1, 6),
    ),
    min_size=1,
    max_size=5,
)


def value_of(taus: Sequence[int], n: int) -> int:
    return sum(taus) + (n - 1) * max(taus)


@examples(100)
@given(rows_of_stages, st.integers(0, 10**6), st.integers(1, 2000))
def test_layers_are_cut_as_well_as_can_be(rows: list[_Row], part: int, n: int) -> None:
    most = sum(row.cap for row in rows)
    layers = len(rows) + part % (most - len(rows) + 1)
    found = balancing._best_counts(rows, layers, n)
    assert sum(found) == layers
    assert all(1 <= c <= row.cap for c, row in zip(found, rows, strict=True))
    every = product(*(range(1, row.cap + 1) for row in rows))

    def value(counts: Sequence[int]) -> int:
        pairs = zip(rows, counts, strict=True)
        return value_of([row.fixed + c * row.each for row, c in pairs], n)

    assert value(found) == min(value(c) for c in every if sum(c) == layers)


@st.composite
def stages_of_unlike_layers(draw: st.DrawFn) -> list[UnlikeRow]:
    layers = draw(st.integers(1, 14))
    us = st.integers(0, 9) | st.integers(0, 10**6)

    def row() -> UnlikeRow:
        times = draw(st.lists(us, min_size=layers, max_size=layers))
        runs = draw(st.lists(st.integers(0, layers), min_size=layers + 1))
        reach = accumulate(
            (min(layers, i + runs[i]) for i in range(layers + 1)), func=max
        )
        return UnlikeRow(draw(us), list(accumulate(times, initial=0)), list(reach))

    return [row() for _ in range(draw(st.integers(1, 5)))]


@examples(100)
@given(
    stages_of_unlike_layers(),
    st.integers(1, 400),
    st.sampled_from((1, 1, 1, 2)),
    st.integers(1, 14),
    st.sampled_from((0, 0, 64)),
)
def test_unlike_layers_are_cut_as_well_as_can_be(
    rows: list[UnlikeRow], n: int, fewest: int, most: int, shift: int
) -> None:
    layers, values = len(rows[0].sums) - 1, {}
    for inner in combinations(range(1, layers), len(rows) - 1):
        spans = [*pairwise((0, *inner, layers))]
        pairs = [*zip(rows, spans, strict=True)]
        sizes = [b - a for a, b in spans]
        able = fewest <= min(sizes) and max(sizes) <= most
        if able and all(row.reach[a] >= b for row, (a, b) in pairs):
            taus = [row.fixed + row.sums[b] - row.sums[a] for row, (a, b) in pairs]
            values[(*inner, layers)] = value_of(taus, n)
    # Times beyond the core's numbers lose bits, of which these have none.
    far = [
        UnlikeRow(row.fixed << shift, [us << shift for us in row.sums], row.reach)
        for row in rows
    ]
    found = best_cuts(far, n, fewest, most)
    assert (found is None) == (not values)
    if found is not None:
        assert values[tuple(found)] == min(values.values())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("best_counts", ([1, 0, 3, 1], 2, 1, [0])),
        ("best_counts", ([1, 0, 3], 4, 1, [0])),
        ("best_counts", ([1, 0, 1 << 62], 4, 1, [0])),
        ("best_counts", ([], 4, 1, [])),
        ("best_cuts", ([0, 0, 3, 1], 1, 1, 1, 1, [0])),
        ("best_cuts", ([0, 0, -3, 1, 1], 1, 1, 1, 1, [0])),
        ("best_cuts", ([0, 0, 3, 1, 0], 1, 1, 1, 1, [0])),
        ("shared", (4, True, [1, 5, 5, 1], [], [0])),
        ("shared", (4, False, [1, 5, 5], [], [0])),
        ("shared", (4, False, [0, 5, 5, 1], [], [0])),
    ],
)
def test_what_does_not_fit_together_is_refused(name: str, words: Sequence[Any]) -> None:
    given = [array("q", word) if isinstance(word, list) else word for word in words]
    with pytest.raises(OverflowError):
        getattr(core, name)(*given)
