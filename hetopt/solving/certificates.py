"""A certificate is what a method leaves to derive its bound from again.

The method builds the record, `hetopt check --bound` reads it: the one thing that the
finder of a bound and its checker share. Numbers are finite, with signs and sizes that
a proof can have, and lists and trees are bounded: a file that came from elsewhere is
refused before a checker computes with it.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ..schema import Name, Record

MOST_CASES = 20_000  # of a training plan; the hardest so far took 100
MOST_INTERVALS = 256  # of the time of a queue
MOST_DIVISIONS = 2_000  # boxes of them
MOST_CHOICES = 65  # of settings, each with a certificate of its own
MOST_DEPTH = 54  # of divisions; files are nested at most 64 deep

Amount = Annotated[float, Field(ge=0, le=2.0**64)]
Moment = Annotated[float, Field(ge=0, le=1e36)]
Row = Annotated[tuple[Amount, ...], Field(max_length=MOST_INTERVALS)]


Cut = Literal["sync", "count", "replicas", "size", "slowest", "host"]
Natural = Annotated[int, Field(ge=0, le=2**60)]


class BoxTree(Record):
    """A box of the plans: refuted by prices, or divided in two.

    A division is of the us that plans synchronise for, of the number of pipelines (one,
    or several), of the least replicas that a layer has, of how many nodes of a class,
    by its number `kind`, are hosts, which hold all replicas of some layer; and of one
    pipeline, of the number of its size of micro-batches, or of the us of its slowest
    stage. The low part goes up to `at`, the high part begins there, or beyond it where
    it is of numbers.

    `prices` are whole numbers, in sequences / scale: of a GPU of each class, of what
    stages need of the nodes of each class beyond what these hold, of all needs, of a
    pipeline, and of what is held; sizes are those of an average layer. A box of one
    pipeline, whose micro-batches have one sequence, may be `laid`: looked at on named
    nodes. A box with nothing of all that is one in which no time is left. Where
    `whole` pipelines of a box take less than the batch, its prices are worth more than
    that, and say which pipelines are too dear.
    """

    prices: Annotated[tuple[Natural, ...], Field(max_length=40_003)] | None = None
    whole: Literal[True] | None = None
    laid: Literal[True] | None = None
    split: Cut | None = None
    at: Natural | None = None
    kind: Annotated[int, Field(ge=0, lt=20_000)] | None = None
    low: "BoxTree | None" = None
    high: "BoxTree | None" = None

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        divided = (self.at, self.low, self.high)
        if self.split is None and divided != (None,) * 3:
            raise ValueError("found parts of a box without split: say of what")
        each = self.prices, self.laid, self.split
        if sum(value is not None for value in each) > 1:
            raise ValueError("found some of prices, laid and split: give one of them")
        if self.split is not None and self.at is None:
            raise ValueError("found split without at: say where")
        if self.whole and self.prices is None:
            raise ValueError("found whole without prices: say at which")
        if (self.split == "host") != (self.kind is not None):
            raise ValueError("expected kind with split 'host' and with no other")
        return self

    def parts(self) -> list["BoxTree"]:
        """Return what the box is divided into, as far as it is given."""
        return [part for part in (self.low, self.high) if part is not None]


class BoxCertificate(Record):
    """No plan is as quick as `time_us`: a tree of boxes, with prices at its leaves.

    Prices are in sequences / `scale`, by the `classes` of equal nodes, each of which is
    called by its first node. `further` are the certificates of the choices of ZeRO and
    of divisions after the first.
    """

    time_us: Natural
    scale: Annotated[int, Field(ge=1, le=2**40)]
    classes: Annotated[tuple[Name, ...], Field(min_length=1, max_length=20_000)]
    tree: BoxTree
    further: Annotated[
        tuple["BoxCertificate", ...], Field(max_length=MOST_CHOICES - 1)
    ] = ()

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if any(other.further for other in self.further):
            raise ValueError("found further certificates within one: list them once")
        _limit(self.tree)
        return self


def _limit(tree: BoxTree) -> None:
    """Refuse a tree that is too large or too deep."""
    number, depth, level = 0, 0, [tree]
    while level:
        number, depth = number + len(level), depth + 1
        if number > MOST_CASES or depth > MOST_DEPTH:
            raise ValueError(
                f"found more than {MOST_CASES} boxes or {MOST_DEPTH} divisions of one "
                "another, expected fewer: solve again"
            )
        level = [part for one in level for part in one.parts()]


def joined(each: Sequence[BoxCertificate | None]) -> BoxCertificate | None:
    """One certificate of those of all choices; None where one is missing, or too many.

    None of them has further ones.
    """
    found = [one for one in each if one is not None]
    if len(found) < len(each) or len(found) > MOST_CHOICES:
        return None
    return found[0].model_copy(update={"further": tuple(found[1:])})


Units = Annotated[tuple[Natural, ...], Field(min_length=1, max_length=20_000)]


class DivisionBox(Record):
    """Divisions of GPUs, of which each class has from `low` to `high` units train.

    `training` is of those of `high`; without it arithmetic says how long they train.
    Where GPUs are priced, `answer` is the price of an answer.
    """

    low: Units
    high: Units
    training: BoxCertificate | None = None
    answer: Natural | None = None


class DivisionCertificate(Record):
    """No step of post-training is as quick as `time_us`, whichever GPUs train.

    `prices` are of a us of a GPU of each class, `turn` is of training on all GPUs.
    """

    time_us: Natural
    prices: Units
    turn: BoxCertificate | None = None
    boxes: Annotated[tuple[DivisionBox, ...], Field(max_length=MOST_DIVISIONS)]


class QueueCertificate(Record):
    """Prices of GPUs over time, at which no queue's average is below its bound.

    Prices are of a GPU for a us, in us of waiting: a row a group of alike nodes, in the
    order of their first nodes, with a price for each interval. Edges of intervals are
    in us after the first submission of a job that is not refused.
    """

    edges: Annotated[
        tuple[Moment, ...], Field(min_length=2, max_length=MOST_INTERVALS + 1)
    ]
    prices: Annotated[tuple[Row, ...], Field(min_length=1, max_length=20_000)]

    @model_validator(mode="after")
    def _on_intervals(self) -> Self:
        if self.edges[0] != 0:
            raise ValueError(f"found edges from {self.edges[0]}, expected from 0")
        for edge, after in pairwise(self.edges):
            if edge >= after:
                raise ValueError(
                    f"found {after} after {edge} in edges, expected ascending ones"
                )
        for row in self.prices:
            if len(row) != len(self.edges) - 1:
                raise ValueError(
                    f"found a row of {len(row)} prices for {len(self.edges)} edges, "
                    f"expected {len(self.edges) - 1}: one for each interval"
                )
        return self
