"""Columns: pipelines as the master knows them."""

from typing import NamedTuple


class Placed(NamedTuple):
    """A stage of a column: its layers, and its replicas (class, GPUs, samples).

    A stage in one node is known by its arc; the pipeline uses `together` GPUs of the
    node. For a stage in several nodes the arc is -1, and its replicas are listed.
    """

    first: int
    last: int
    arc: int
    together: int = 0
    replicas: tuple[tuple[int, ...], ...] = ()
    items: tuple[int, ...] = ()


class Column(NamedTuple):
    """A pipeline of one part of a box: what it uses of each row, and how long it takes.

    `uses` are in the order of `Prices`, sizes in average layers.
    """

    part: int
    span: tuple[int, int]
    uses: tuple[float, ...]
    sum_us: int
    slowest_us: int
    stages: tuple[Placed, ...] = ()
