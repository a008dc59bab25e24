"""The compiled core and its twins in Python give the same numbers."""

from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples

from hetopt._kernels import core, status
from hetopt.search import balancing
from hetopt.search.balancing import _Row, best_counts, share
from hetopt.search.fast_cost import Timing

compiled = pytest.mark.skipif(core is None, reason=status.reason)

rows_of_stages = st.lists(
    st.builds(
        _Row,
        each=st.integers(1, 10**7),
        fixed=st.integers(0, 10**7),
        cap=st.integers(1, 60),
    ),
    min_size=1,
    max_size=12,
)


@compiled
@examples(200)
@given(rows_of_stages, st.integers(0, 10**6), st.integers(1, 2000))
def test_layers_are_cut_alike(rows: list[_Row], part: int, n: int) -> None:
    most = sum(row.cap for row in rows)
    layers = len(rows) + part % (most - len(rows) + 1)
    flat = array("q", [number for row in rows for number in row])
    assert core.best_counts(flat, layers, n) == best_counts(rows, layers, n)


@st.composite
def timings(draw: st.DrawFn) -> Timing:
    taus = tuple(draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=9)))
    return Timing(sum(taus), max(taus), taus, (0,) * len(taus))


@compiled
@examples(200)
@given(
    st.lists(st.tuples(timings(), st.sampled_from((1, 1, 2, 4))), min_size=1),
    st.integers(1, 500),
    st.sampled_from(("critical", "lockstep")),
)
def test_the_batch_is_shared_alike(
    pipes: list[tuple[Timing, int]], batch: int, rule: str
) -> None:
    times = [timing for timing, _ in pipes]
    sizes = [size for _, size in pipes]
    rows = array("q")
    for timing, size in pipes:
        rows.extend((size, timing.total, timing.slowest, len(timing.taus)))
    taus = array("q", [tau for timing in times for tau in timing.taus])
    found = core.shared(batch, rule == "lockstep", rows, taus)
    assert found == share(batch, rule, times, sizes)


@compiled
@pytest.mark.parametrize(
    ("call", "error"),
    [
        (("best_counts", [1, 0, 3, 1], 2, 1), OverflowError),
        (("best_counts", [1, 0, 3], 4, 1), OverflowError),
        (("best_counts", [1, 0, 1 << 62], 4, 1), OverflowError),
        (("best_counts", [], 4, 1), OverflowError),
        (("shared", 4, True, [1, 5, 5, 1], []), OverflowError),
        (("shared", 4, False, [1, 5, 5], []), ValueError),
        (("shared", 4, False, [0, 5, 5, 1], []), OverflowError),
    ],
)
def test_what_does_not_fit_together_is_refused(
    call: Sequence[Any], error: type[Exception]
) -> None:
    name, *words = call
    given = [array("q", word) if isinstance(word, list) else word for word in words]
    with pytest.raises(error):
        getattr(core, name)(*given)


@compiled
def test_only_64_bit_whole_numbers_are_read() -> None:
    with pytest.raises(TypeError):
        core.best_counts(array("d", [1.0, 0.0, 3.0]), 2, 1)
    with pytest.raises(TypeError):
        core.best_counts([1, 0, 3], 2, 1)


def test_times_beyond_64_bits_are_balanced_in_python() -> None:
    rows = [_Row(1 << 70, 0, 3), _Row(1 << 71, 5, 3)]
    assert balancing._best_counts(rows, 3, 4) == best_counts(rows, 3, 4) == [2, 1]
