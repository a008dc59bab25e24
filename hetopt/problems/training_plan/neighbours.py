"""Replicas in an order in which every host serves neighbouring ranks.

Some launchers give a host a run of ranks: stage by stage, in each the replicas in
order. Which replica is the first says nothing, as long as those of one place in their
stages stay together: so an order is looked for.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby

from ...plans import Pipeline, Replica

Hosts = tuple[str, ...]  # of the replicas of one place, a stage each

LARGEST = 10_000  # steps after which no order is looked for any more


def hosts_apart(pipeline: Pipeline) -> list[str]:
    """Hosts whose ranks are not neighbours, sorted."""
    held = (replica.node for stage in pipeline.stages for replica in stage.replicas)
    runs = [host for host, _ in groupby(held)]
    return sorted({host for host in runs if runs.count(host) > 1})


def together(pipeline: Pipeline) -> Pipeline:
    """The pipeline with its replicas in an order in which hosts serve neighbours.

    As it is where there is none, where none is found in `LARGEST` steps, and where
    stages have different numbers of replicas.
    """
    rows = [stage.replicas for stage in pipeline.stages]
    if len(set(map(len, rows))) > 1 or not hosts_apart(pipeline):
        return pipeline
    alike: dict[Hosts, list[tuple[Replica, ...]]] = {}
    for column in zip(*rows, strict=True):
        alike.setdefault(tuple(replica.node for replica in column), []).append(column)
    steps = iter(range(LARGEST))
    for order in _orders([], list(alike), steps):
        columns = list(chain.from_iterable(alike[hosts] for hosts in order))
        ordered = _with_columns(pipeline, columns)
        if not hosts_apart(ordered):
            return ordered
    return pipeline


def _with_columns(
    pipeline: Pipeline, columns: Sequence[tuple[Replica, ...]]
) -> Pipeline:
    stages = tuple(
        stage.model_copy(update={"replicas": row})
        for stage, row in zip(
            pipeline.stages, map(tuple, zip(*columns, strict=True)), strict=True
        )
    )
    return pipeline.model_copy(update={"stages": stages})


def _orders(
    before: list[Hosts], left: list[Hosts], steps: Iterator[int]
) -> Iterator[list[Hosts]]:
    """Orders in which no host returns within a stage, until the steps are used up.

    Replicas of the same hosts stand side by side: that parts no host's ranks.
    """
    if not left:
        yield before
    for hosts in left:
        if next(steps, None) is not None and not _returns(before, hosts):
            rest = [other for other in left if other is not hosts]
            yield from _orders([*before, hosts], rest, steps)


def _returns(before: list[Hosts], hosts: Hosts) -> bool:
    return bool(before) and any(
        host != last and any(host == earlier[stage] for earlier in before)
        for stage, (host, last) in enumerate(zip(hosts, before[-1], strict=True))
    )
