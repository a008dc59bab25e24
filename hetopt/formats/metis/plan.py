"""Ranked plans as Metis prints them, against the instance that they are for.

A line is `rank, cost, node_sequence, device_groups, strategies, batches, partition`:

    1, 2396.7, (<DeviceType.T4: 't4'>, <DeviceType.A100: 'a100'>), [8, 8],
        [(4, 2), (4, 2)], 8, [0, 4, 10]

(on one line). Other lines are passed over; cost is in ms. Types are named as those of
the instance, or by the option `types` (`T4:T4-16GB`). GPUs are taken node by node, the
nodes of the first type of the sequence first; a stage takes as many as its group has,
in replicas of tp GPUs, one after another. It holds the layers from its entry of the
partition to the next one, counted as the instance counts them. A micro-batch is global
batch / batches sequences: in equal shares in a group of one type, else in proportion to
the speed of a sequence on the whole model, as Metis balances; a replica without a share
stays idle. What is incomplete is kept, for the judge to name.
"""

import json
import re
from ast import literal_eval
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from ...costs import CostTable
from ...errors import InstanceError
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance
from ...text.documents import Document
from ...text.parsing import read_text
from ..importing import placing
from ..importing.placing import Claim

OPTIONS: Document = {"types": str}

_LINE = re.compile(r"\s*(\d{1,9})\s*,\s*[^,\[\]]{1,40},(.*\[.*\].*)")
_ENUM = re.compile(r"<?\bDeviceType\.(\w+)(?:\s*:\s*'[^']*'\s*>)?")
_NUMPY = re.compile(r"\bnp\.\w{1,20}\(([^()]{0,40})\)")
_LONGEST = 20_000  # characters of a line
_Number = Annotated[int, Field(ge=0, le=10**7)]
_Positive = Annotated[int, Field(gt=0, le=10**7)]
_ROW = TypeAdapter(
    tuple[
        tuple[str, ...],
        tuple[_Number, ...],
        tuple[tuple[_Positive, _Positive], ...],
        _Positive,
        tuple[_Number, ...],
    ],
    config=ConfigDict(strict=True),
)
_FIELDS = "node_sequence, device_groups, strategies, batches, layer_partition"


def claims(path: Path, data: Instance, *, types: str = "") -> Iterator[Claim]:
    """Yield the plans of a log, in its order; `InstanceError` where it has none."""
    named = placing.names(data, types)
    table = CostTable(data)
    none = True
    for number, line in enumerate(read_text(path).splitlines(), 1):
        match = _LINE.fullmatch(_NUMPY.sub(r"\1", line))
        if match is None:
            continue
        none = False
        place = f"{path}: line {number}"
        plan = partial(_plan, table, match[2], named, place)
        yield placing.claim(int(match[1]), plan)
    if none:
        raise InstanceError(
            f"{path}: found no plan, expected lines `rank, cost, {_FIELDS}` as Metis "
            "prints them at its end; name its output"
        )


def _fields(text: str, place: str) -> tuple[Any, ...]:
    """Return the five values after the cost, read as literals and never run."""
    if len(text) > _LONGEST:
        raise InstanceError(f"{place}: found {len(text)} characters, expected fewer")
    found = f"{place}: found {text.strip()[:60]!r}, expected {_FIELDS}"
    try:
        values = literal_eval("(" + _ENUM.sub(r"'\1'", text) + ")")
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise InstanceError(
            f"{found} as Python writes them; correct the line"
        ) from None
    if isinstance(values, tuple) and len(values) == 6 and isinstance(values[4], list):
        values = values[:5]  # and the number of partitions that were tried
    with suppress(ValueError, TypeError):  # of values that no JSON has
        row = _ROW.validate_json(json.dumps(values))
        if 0 < len(row[1]) == len(row[2]) == len(row[4]) - 1:
            return row
    raise InstanceError(
        f"{found}: types, GPUs of each stage, (dp, tp) of each, a number, a bound more "
        "than stages; correct the line"
    )


def _plan(
    table: CostTable, text: str, named: dict[str, str], place: str
) -> TrainingPlan:
    sequence, groups, strategies, batches, partition = _fields(text, place)
    data = table.instance
    kinds = [placing.type_of([word], named, place) for word in sequence]
    ranks = list(placing.in_order(data, kinds))
    size = data.workload.global_batch // batches
    if size < 1:
        raise InstanceError(
            f"{place}: found {batches} batches of a global batch of "
            f"{data.workload.global_batch}; read it against the instance it is for"
        )
    stages, start = [], 0
    for j, (group, (dp, tp)) in enumerate(zip(groups, strategies, strict=True)):
        if dp * tp > group or start + group > len(ranks):
            raise InstanceError(
                f"{place}: stage {j}: found {dp} replicas of {tp} GPUs in a group of "
                f"{group}, from GPU {start} of {len(ranks)}; read it against the "
                "cluster it is for"
            )
        gpus = ranks[start : start + dp * tp]
        cut = [tuple(gpus[r * tp : r * tp + tp]) for r in range(dp)]
        shares = _shares(table, cut, size, f"{place}: stage {j}")
        replicas = tuple(
            Replica(gpus=gpus, samples=share)
            for gpus, share in zip(cut, shares, strict=True)
            if share
        )
        stages.append(Stage(layers=tuple(partition[j : j + 2]), replicas=replicas))
        start += group
    pipeline = Pipeline(
        micro_batches=batches, micro_batch_size=size, stages=tuple(stages)
    )
    return TrainingPlan(pipelines=(pipeline,))


def _shares(
    table: CostTable, replicas: Sequence[tuple[str, ...]], size: int, place: str
) -> list[int]:
    """Sequences of each replica: equal within a type, else in proportion to speed."""
    nodes = [gpus[0].rpartition(":")[0] for gpus in replicas]
    if len({table.cluster.node[node].gpu for node in nodes}) == 1:
        if size < len(replicas):
            raise InstanceError(
                f"{place}: found {len(replicas)} replicas for {size} sequences; read "
                "it against the instance it is for"
            )
        # What does not divide is left over, as Metis leaves it: the judge counts it.
        return [size // len(replicas)] * len(replicas)
    degree = len(replicas[0])
    speeds = [Fraction(1, max(1, sum(table.layer_us(n, degree, 1)))) for n in nodes]
    exactly = [size * speed / sum(speeds) for speed in speeds]
    shares = [int(share) for share in exactly]
    parts = sorted(range(len(nodes)), key=lambda r: shares[r] - exactly[r])
    for r in parts[: size - sum(shares)]:
        shares[r] += 1
    return shares
