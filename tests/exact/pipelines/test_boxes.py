"""The parts of a box cover it, ends included."""

from dataclasses import dataclass
from random import Random
from typing import get_args

from hetopt.exact.pipelines.boxes import Box, Division, Of, Split
from hetopt.exact.pipelines.schedule import Schedule

_SIZES = (1, 2, 4, 7)
_NODES, _NODE_GPUS = (2, 3), (4, 9)


@dataclass(frozen=True)
class _Point:
    """What of a plan boxes have ranges of."""

    sync: int
    replicas: int
    count: int
    size: int
    slowest: int
    hosts: tuple[int, ...]

    @property
    def possible(self) -> bool:
        """Each pipeline holds all layers; one holds no more than a replica a sample.

        A host has a GPU for each replica of some layer.
        """
        alone = self.count > 1 or self.replicas <= _SIZES[self.size]
        pairs = zip(self.hosts, _NODE_GPUS, strict=True)
        room = all(self.replicas <= gpus for number, gpus in pairs if number)
        return 1 <= self.count <= self.replicas and alone and room


def _within(box: Box, point: _Point) -> bool:
    ranges = [
        (box.sync_low_us, point.sync, box.sync_high_us),
        (box.replicas_low, point.replicas, box.replicas_high),
        (box.count_low, point.count, box.count_high),
    ]
    if box.count_high == 1:  # of several pipelines each has its own
        ranges += [
            (box.size_low, point.size, box.size_high),
            (box.slowest_low_us, point.slowest, box.slowest_high_us),
        ]
    if box.hosts_high:
        ranges += [*zip(box.hosts_low, point.hosts, box.hosts_high, strict=True)]
    return all(
        low <= value and (high is None or value <= high) for low, value, high in ranges
    )


def _near(rng: Random, box: Box, split: Split) -> _Point:
    """A point of the box, near where it is divided most likely."""

    def some(of: str, low: int, high: int | None) -> int:
        high = low + 1000 if high is None else high
        if split.of == of and rng.random() < 0.8:
            return min(high, max(low, split.at + rng.choice([-1, 0, 0, 1])))
        return rng.choice([low, high, rng.randint(low, max(low, high))])

    return _Point(
        some("sync", box.sync_low_us, box.sync_high_us),
        some("replicas", box.replicas_low, box.replicas_high),
        some("count", box.count_low, box.count_high),
        some("size", box.size_low, box.size_high),
        some("slowest", box.slowest_low_us, box.slowest_high_us),
        tuple(rng.choice([0, 1, most - 1, most]) for most in _NODES),
    )


def test_parts_cover_their_box_however_it_is_divided():
    kinds = set().union(*map(_divided, range(80)))
    assert kinds == {*get_args(Of)} - {"site"}


def _divided(seed):
    """Divide a box again and again; return of what."""
    rng = Random(f"boxes/{seed}")
    schedule = Schedule(
        coarse=rng.choice([1 / 8, 1 / 2]), fine=rng.choice([1 / 64, 1 / 3])
    )
    most_sync, left = rng.choice([0, 5, 1000]), rng.choice([10, 100_000])
    least_slowest = rng.choice([0, 7])
    division = Division(
        *(schedule, most_sync, _SIZES, least_slowest, 28),
        **{"nodes": _NODES, "node_gpus": _NODE_GPUS, "few": rng.random() < 0.5},
    )
    end = rng.choice([None, most_sync])
    box = Box(most_sync if end is None else 0, end, 1, 20, 1, 20, 0, len(_SIZES) - 1)
    kinds, tried = set(), 0
    for _ in range(60):
        if (split := division.split(box, left)) is None:
            break
        kinds.add(split.of)
        points = [_near(rng, box, split) for _ in range(40)]
        for point in filter(lambda x: x.possible and _within(box, x), points):
            tried += 1
            assert _within(split.low, point) or _within(split.high, point), point
        box = rng.choice([split.low, split.high])
    assert not kinds or tried
    return kinds
