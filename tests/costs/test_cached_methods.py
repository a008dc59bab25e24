"""Methods whose values are kept by the object."""

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.caching import cached_method


class Counter:
    def __init__(self, factor: int) -> None:
        self.factor, self.calls = factor, 0

    @cached_method
    def times(self, number: int, plus: int = 0) -> int:
        """Return a product and a sum."""
        self.calls += 1
        if number < 0:
            raise ValueError(number)
        return self.factor * number + plus


@given(
    st.integers(),
    st.integers(),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2))),
)
def test_each_object_works_out_each_value_once(
    one: int, two: int, asked: list[tuple[int, int]]
) -> None:
    for factor in (one, two):
        counter = Counter(factor)
        for number, plus in asked:
            assert counter.times(number, plus) == factor * number + plus
        assert counter.calls == len(set(asked))


def test_a_cache_dies_with_its_object() -> None:
    counter = Counter(3)
    counter.times(2)
    dead = weakref.ref(counter)
    del counter
    gc.collect()
    assert dead() is None


def test_what_raises_is_asked_again_and_the_docstring_stays() -> None:
    counter = Counter(3)
    for _ in range(2):
        with pytest.raises(ValueError, match="-1"):
            counter.times(-1)
    assert counter.calls == 2
    assert Counter.times.__doc__ == "Return a product and a sum."
