"""A recovery plan makes each shard of saved parts, in files."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from ..errors import InstanceError
from ..plans import Recovery, Transfer
from .layout import CLOUD, MAX_DEGREE, Manifest, Portion, Shard, folder_of

Interval = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class Move:
    """A shard to be made, and the parts of saved shards that follow one another."""

    shard: Shard
    pieces: tuple[tuple[Portion, Shard], ...]


def moves(recovery: Recovery, manifest: Manifest) -> list[Move]:
    """One move a shard and node; GPUs of a node that need the same shard share it.

    Raises `InstanceError` where the parts of a GPU leave a gap, overlap or make no
    shard, where a part is outside the shard that it is read from, and where a unit of
    the checkpoint would not be whole anywhere.
    """
    by_need: dict[tuple[str, str], list[Transfer]] = defaultdict(list)
    for transfer in recovery.transfers:
        by_need[transfer.unit, transfer.gpu].append(transfer)
    found: dict[Shard, Move] = {}
    for (unit, gpu), transfers in by_need.items():
        manifest.unit(unit)
        move = _move(unit, gpu, transfers)
        found.setdefault(move.shard, move)
    for name in (unit.name for unit in manifest.units):
        _check_kept(name, (shard for shard in found if shard.unit == name))
    return [found[shard] for shard in sorted(found)]


def _move(unit: str, gpu: str, transfers: list[Transfer]) -> Move:
    where = f"transfers of unit {unit!r} to {gpu}"
    node = gpu.rpartition(":")[0]
    if node == CLOUD:
        raise InstanceError(
            f"{where}: found a node named {CLOUD!r}, which is the name of the storage; "
            "rename the node"
        )
    folder_of(node)
    ordered = sorted(transfers, key=lambda transfer: _interval(transfer.part))
    pieces = tuple((one.part, _source(one, where)) for one in ordered)
    edges = [_interval(one.part) for one in ordered]
    for (_, end), (start, _) in pairwise(edges):
        if start != end:
            what = "a gap" if start > end else "an overlap"
            raise InstanceError(
                f"{where}: found {what} between {end} and {start} of the unit, "
                "expected every part once; recover with another plan"
            )
    rank, degree = _rank(edges[0][0], edges[-1][1], where)
    return Move(Shard(unit, rank, degree, node), pieces)


def _rank(first: Fraction, last: Fraction, where: str) -> tuple[int, int]:
    degree = 1 / (last - first)
    rank = first * degree
    if degree.denominator != 1 or rank.denominator != 1 or degree > MAX_DEGREE:
        raise InstanceError(
            f"{where}: found {first} to {last} of the unit, expected the part of a "
            f"tensor-parallel rank, r/t to (r+1)/t, t at most {MAX_DEGREE}; recover "
            "with another plan"
        )
    return int(rank), int(degree)


def _source(transfer: Transfer, where: str) -> Shard:
    rank, degree = transfer.shard
    if not 0 <= rank < degree <= MAX_DEGREE:
        raise InstanceError(
            f"{where}: shard: found rank {rank} of {degree}, expected one from 0 to "
            f"the degree, at most {MAX_DEGREE}; correct the plan"
        )
    first, last = _interval(transfer.part)
    held = Fraction(rank, degree), Fraction(rank + 1, degree)
    if not held[0] <= first < last <= held[1]:
        raise InstanceError(
            f"{where}: part: found {first} to {last} of the unit, expected a part of "
            f"{held[0]} to {held[1]}, which shard {rank} of {degree} holds; correct "
            "the plan"
        )
    return Shard(transfer.unit, rank, degree, transfer.source)


def _interval(part: Portion) -> Interval:
    first, last, of = part
    if of < 1:
        raise InstanceError(
            f"part: found {list(part)}, expected [first, last, of] with of at least 1; "
            "correct the plan"
        )
    return Fraction(first, of), Fraction(last, of)


def held_to(shards: Iterable[Shard]) -> Fraction:
    """Up to where a unit is whole, from its start, by these shards of it; 1 is all."""
    end = Fraction(0)
    for first, last in sorted(
        _interval((shard.rank, shard.rank + 1, shard.degree)) for shard in shards
    ):
        if first > end:
            break
        end = max(end, last)
    return end


def _check_kept(unit: str, shards: Iterable[Shard]) -> None:
    """Refuse to end with less than the whole unit: the state would be lost."""
    if (end := held_to(shards)) < 1:
        raise InstanceError(
            f"transfers of unit {unit!r}: found none for what lies from {end} of it "
            "on, expected every unit of the checkpoint to be whole afterwards; recover "
            "for the plan of the same model"
        )
