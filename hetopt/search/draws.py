"""Random draws that C and Python make alike: splitmix64, and few kinds of draws."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")
_MASK = (1 << 64) - 1


class Draws:
    """A small generator; the same seed draws the same in `_kernels/walk.c`."""

    def __init__(self, seed: int) -> None:
        """Draws begin anew with each seed, of which 64 bits count."""
        self.state = seed & _MASK

    def bits(self) -> int:
        """Return 64 random bits."""
        self.state = state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
        return state ^ (state >> 31)

    def below(self, end: int) -> int:
        """Return a whole number from 0 to `end` - 1; `end` has at most 32 bits."""
        return (self.bits() >> 32) * end >> 32

    def share(self) -> float:
        """Return a number from 0 to 1, 1 left out."""
        return (self.bits() >> 11) * 2.0**-53

    def one_of(self, items: Sequence[Item]) -> Item:
        """Return an item, each as likely as the others."""
        return items[self.below(len(items))]

    def weighed(self, upto: Sequence[int]) -> int:
        """Return a position; `upto` are sums of weights up to each."""
        return bisect_right(upto, self.below(upto[-1]))

    def two_below(self, end: int) -> tuple[int, int]:
        """Return two different whole numbers below `end`, which is at least 2."""
        one, two = self.below(end), self.below(end - 1)
        return one, two + (two >= one)
