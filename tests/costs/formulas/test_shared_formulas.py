"""Formulas that plans and runs share, beside counts that are made one by one."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from hetopt.costs.formulas.shared import in_flight, ring_s, scores

SMALL = st.integers(1, 12)


@given(SMALL, SMALL)
def test_scores_of_a_window_are_twice_the_pairs_that_see_each_other(
    tokens: int, most: int
) -> None:
    window = min(tokens, most)
    places = range(tokens)
    sliding = sum(0 <= i - j < window for i in places for j in places)
    assert scores(tokens, window) == 2 * sliding - window
    chunks = sum(j <= i and i // window == j // window for i in places for j in places)
    assert scores(tokens, window, chunked=True) == 2 * chunks - tokens


@given(st.integers(1, 9), SMALL, SMALL, SMALL)
def test_a_ring_takes_as_long_as_its_messages_one_after_the_other(
    members: int, volume: int, latency: int, rate: int
) -> None:
    one = latency + Fraction(volume, members * rate)
    exact = ring_s(Fraction(volume), members, Fraction(latency), Fraction(rate))
    assert exact == sum((one for _ in range(members - 1)), Fraction(0))
    # Floats round, fractions do not; that is all they differ by.
    rounded = ring_s(float(volume), members, float(latency), float(rate))
    assert abs(rounded - exact) <= 1e-12 * max(1, exact)


def order_of_passes(n: int, p: int, stage: int, v: int) -> list[int]:
    """Megatron's order on one GPU: +1 a forward pass of a chunk, -1 a backward pass."""
    if v == 1:
        first = min(n, p - stage - 1)
    else:
        first = min(n * v, 2 * (p - stage - 1) + (v - 1) * p)
    steady = [1, -1] * (n * v - first)
    return [1] * first + steady + [-1] * first


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 5), st.integers(1, 4))
def test_in_flight_is_the_most_that_an_order_of_passes_has_open(
    rounds: int, p: int, stage: int, v: int
) -> None:
    stage, n = stage % p, rounds * p  # interleaved, batches are multiples of stages
    if p == 1:
        v = 1
    open_, most = 0, 0
    for step in order_of_passes(n, p, stage, v):
        open_ += step
        most = max(most, open_)
    assert in_flight(n, p, stage, v) == Fraction(most, v)
