"""A plan in HexiScale's (FlashFlex's) `hetero_configs.json`, against its instance.

    {"hetero_configs": [[4, 2], [2]], "layer_partitions": [[2, 2], [4]],
     "devices_id": [[[0, 0, 0, 0], [0, 0]], [[0, 0]]]}

lists for every pipeline the tensor-parallel degrees of its stages, their numbers of
layers, and the machine of every GPU. Machines are nodes of the instance by number, or
those of the option `machines` (names, `node2,node0`); a machine gives its GPUs in the
order of the file. The file does not tell the batch of a pipeline: `micro_batches` are
their micro-batches (`14,10`) of `micro_batch_size` sequences (1), by default an equal
share of the global batch, earlier pipelines taking what is over.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from ...errors import InstanceError
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance
from ...text.documents import Document
from ..foreign import Foreign, read_record, whole_numbers
from ..importing.placing import Claim

OPTIONS: Document = {"machines": str, "micro_batches": str, "micro_batch_size": int}
_MOST = 10_000  # pipelines, stages of one, layers of one
_Small = Annotated[int, Field(ge=0, le=_MOST)]
_Row = Annotated[tuple[_Small, ...], Field(min_length=1, max_length=_MOST)]
_Rows = Annotated[tuple[_Row, ...], Field(min_length=1, max_length=_MOST)]


class HeteroConfigs(Foreign):
    """`hetero_configs.json`: a row for each pipeline, in it a value for each stage."""

    hetero_configs: _Rows
    layer_partitions: _Rows
    devices_id: tuple[tuple[tuple[int, ...], ...], ...]

    @model_validator(mode="after")
    def _alike(self) -> Self:
        degrees, layers, devices = (
            self.hetero_configs,
            self.layer_partitions,
            self.devices_id,
        )
        if not len(degrees) == len(layers) == len(devices):
            raise ValueError(
                f"found hetero_configs of {len(degrees)} pipelines, layer_partitions "
                f"of {len(layers)}, expected as many in all, and in devices_id; "
                "correct them"
            )
        for i, (row, cut, held) in enumerate(
            zip(degrees, layers, devices, strict=True)
        ):
            if len(row) != len(cut) or row != tuple(map(len, held)) or 0 in row:
                raise ValueError(
                    f"devices_id[{i}]: expected {len(row)} stages as in "
                    "hetero_configs and in layer_partitions, each with the machine of "
                    "every GPU of its degree; correct it"
                )
        return self


def claims(
    path: Path,
    data: Instance,
    *,
    machines: str = "",
    micro_batches: str = "",
    micro_batch_size: int = 1,
) -> Iterator[Claim]:
    """Yield the one plan of the file."""
    told = read_record(HeteroConfigs, path)
    if micro_batch_size < 1:
        raise InstanceError(
            f"option micro_batch_size: found {micro_batch_size}, expected 1 or more; "
            "correct it"
        )
    taken: Counter[str] = Counter()
    nodes = _machines(data, machines)
    counts = _counts(data, micro_batches, micro_batch_size, len(told.devices_id))
    pipelines = []
    for i, (cut, held) in enumerate(
        zip(told.layer_partitions, told.devices_id, strict=True)
    ):
        spans = pairwise(accumulate(cut, initial=0))
        replicas = (
            Replica(
                gpus=_gpus(taken, nodes, at, f"{path}: devices_id[{i}][{j}]"),
                samples=micro_batch_size,
            )
            for j, at in enumerate(held)
        )
        stages = (
            Stage(layers=span, replicas=(replica,))
            for span, replica in zip(spans, replicas, strict=True)
        )
        pipelines.append(
            Pipeline(
                micro_batches=counts[i],
                micro_batch_size=micro_batch_size,
                stages=tuple(stages),
            )
        )
    yield Claim(1, TrainingPlan(pipelines=tuple(pipelines)))


def _machines(data: Instance, told: str) -> list[str]:
    names = [node.name for node in data.planned_cluster.nodes]
    wanted = told.split(",") if told else names
    if unknown := [name for name in wanted if name not in names]:
        raise InstanceError(
            f"option machines: found {unknown[0]!r}, expected nodes of the instance: "
            f"{', '.join(names[:20])}; correct it"
        )
    return wanted


def _gpus(
    taken: Counter[str], nodes: list[str], machines: tuple[int, ...], place: str
) -> tuple[str, ...]:
    """Return the next GPU of each machine; one that is not there the judge names."""
    gpus = []
    for machine in machines:
        if not 0 <= machine < len(nodes):
            raise InstanceError(
                f"{place}: found machine {machine!r}, expected 0 to "
                f"{len(nodes) - 1} as the instance has nodes; read it against the "
                "instance it is for"
            )
        node = nodes[machine]
        gpus.append(f"{node}:{taken[node]}")
        taken[node] += 1
    return tuple(gpus)


def _counts(data: Instance, told: str, size: int, pipelines: int) -> list[int]:
    if not told:
        whole = data.workload.global_batch // size
        if whole < pipelines:
            raise InstanceError(
                f"found {pipelines} pipelines, expected at most the micro-batches of "
                f"the global batch, {whole}; read the plan against the instance it is "
                "for"
            )
        share, over = divmod(whole, pipelines)
        return [share + (number < over) for number in range(pipelines)]
    expected = f"{pipelines} whole numbers separated by commas, one a pipeline"
    return whole_numbers("micro_batches", told, expected, pipelines)
