"""Numbers over many runs."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt import run_statistics


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=20), st.floats(0.1, 10))
def test_a_shifted_geometric_mean_is_that_of_shifted_values(
    values: list[float], shift: float
) -> None:
    found = run_statistics.shifted_geometric_mean(values, shift)
    mean = statistics.geometric_mean([value + shift for value in values]) - shift
    assert found == pytest.approx(mean, rel=1e-6, abs=1e-6)
    assert run_statistics.shifted_geometric_mean([]) is None
