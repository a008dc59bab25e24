"""Pieces of units as transfers: which saved shard each run of pieces is read from."""

from collections.abc import Iterable, Iterator
from math import gcd

from ...errors import InternalError
from ...plans import Recovery, Transfer
from . import Data, Medium, Need

Source = tuple[str, Medium]  # a node and its medium, or ("cloud", "cloud")


def bits_of(data: Data, need: Need, unit: str) -> int:
    """Return the pieces of a unit that a need asks for, as a bitmap."""
    width = data.grid[unit] // need.degree
    return ((1 << width) - 1) << (need.rank * width)


def numbers(bits: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


class Assembler:
    """Makes transfers of pieces; which shard holds which piece is looked up once."""

    def __init__(self, data: Data) -> None:
        """Index the shards of `data` by unit and place."""
        self._data = data
        self._shards: dict[tuple[str, Source], list[tuple[int, int]]] = {}
        for saved in data.saved:
            for name in saved.units:
                key = (name, (saved.place, saved.medium))
                self._shards.setdefault(key, []).append((saved.rank, saved.degree))

    def transfers(
        self, gpu: str, unit: str, source: Source, bits: int
    ) -> Iterator[Transfer]:
        """The pieces `bits` of a unit from `source` to a GPU, in as few as possible.

        All of them must lie there.
        """
        grid, found = self._data.grid[unit], self._shards.get((unit, source), [])
        while bits:
            first = (bits & -bits).bit_length() - 1
            (rank, degree), last = self._longest(found, grid, first, bits)
            common = gcd(first, last, grid)
            yield Transfer(
                gpu=gpu,
                unit=unit,
                shard=(rank, degree),
                part=(first // common, last // common, grid // common),
                source=source[0],
                medium=source[1],
            )
            bits &= ~((1 << last) - 1)

    @staticmethod
    def _longest(
        shards: Iterable[tuple[int, int]], grid: int, first: int, bits: int
    ) -> tuple[tuple[int, int], int]:
        """The shard that serves the longest run from `first`, and the run's end."""
        run = first
        while bits >> run & 1:
            run += 1
        best: tuple[tuple[int, int], int] | None = None
        for rank, degree in shards:
            width = grid // degree
            if rank * width <= first < (rank + 1) * width:
                last = min(run, (rank + 1) * width)
                if best is None or last > best[1]:
                    best = ((rank, degree), last)
        if best is None:
            raise InternalError(f"piece {first} of {grid} does not lie in its source")
        return best

    def plan(self, chosen: Iterable[tuple[str, str, Source, int]]) -> Recovery:
        """Return the plan of rows (GPU, unit, source, bits)."""
        rows = (t for row in chosen for t in self.transfers(*row))
        return Recovery(transfers=tuple(rows))
