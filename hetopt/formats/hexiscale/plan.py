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

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import InstanceError
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance
from ...text.parsing import read_tree
from ..importing.claim import Claim
from ..importing.placing import Pool

OPTIONS: dict[str, type] = {
    "machines": str,
    "micro_batches": str,
    "micro_batch_size": int,
}
_MOST = 10_000  # pipelines, stages of one, layers of one


def claims(
    path: Path,
    data: Instance,
    *,
    machines: str = "",
    micro_batches: str = "",
    micro_batch_size: int = 1,
) -> Iterator[Claim]:
    """The one plan of the file; HexiScale's file claims no time."""
    tree = read_tree(path)
    degrees = _lists(tree, "hetero_configs", path)
    layers = _lists(tree, "layer_partitions", path)
    devices = tree.get("devices_id")
    if not isinstance(devices, list) or not len(degrees) == len(layers) == len(devices):
        raise InstanceError(
            f"{path}: found hetero_configs of {len(degrees)} pipelines, "
            f"layer_partitions of {len(layers)}, expected as many in all, and in "
            "devices_id; correct them"
        )
    if micro_batch_size < 1:
        raise InstanceError(
            f"option micro_batch_size: found {micro_batch_size}, expected 1 or more; "
            "correct it"
        )
    pool = Pool(data)
    numbers = _numbers(data, machines)
    counts = _counts(data, micro_batches, micro_batch_size, len(degrees))
    pipelines = []
    for i, (row, cut, held) in enumerate(zip(degrees, layers, devices, strict=True)):
        place = f"{path}: devices_id[{i}]"
        stages = _stages(row, cut, held, place)
        pipelines.append(
            Pipeline(
                micro_batches=counts[i],
                micro_batch_size=micro_batch_size,
                stages=tuple(
                    Stage(
                        layers=span,
                        replicas=(
                            Replica(
                                gpus=_gpus(pool, numbers, at, f"{place}[{j}]"),
                                samples=micro_batch_size,
                            ),
                        ),
                    )
                    for j, (span, at) in enumerate(stages)
                ),
            )
        )
    yield Claim(1, str(path), None, TrainingPlan(pipelines=tuple(pipelines)))


def _lists(tree: dict[str, Any], name: str, path: Path) -> list[list[int]]:
    """A list of one list of small whole numbers for each pipeline."""
    rows = tree.get(name)
    if (
        not isinstance(rows, list)
        or not 0 < len(rows) <= _MOST
        or not all(isinstance(row, list) and 0 < len(row) <= _MOST for row in rows)
        or not all(type(n) is int and 0 <= n <= _MOST for row in rows for n in row)
    ):
        raise InstanceError(
            f"{path}: {name}: expected a list of whole numbers for each pipeline, such "
            "as [[4, 2], [2]]; correct it"
        )
    return rows


def _stages(
    degrees: list[int], layers: list[int], held: Any, place: str
) -> list[tuple[tuple[int, int], list[int]]]:
    """Layers and machines of every stage of a pipeline."""
    right = isinstance(held, list) and len(held) == len(degrees) == len(layers)
    if not right or not all(
        isinstance(at, list) and len(at) == t > 0
        for at, t in zip(held, degrees, strict=True)
    ):
        raise InstanceError(
            f"{place}: expected {len(degrees)} stages as in hetero_configs and in "
            "layer_partitions, each with the machine of every GPU of its degree; "
            "correct it"
        )
    ends = [sum(layers[: j + 1]) for j in range(len(layers))]
    starts = [0, *ends[:-1]]
    return list(zip(zip(starts, ends, strict=True), held, strict=True))


def _numbers(data: Instance, told: str) -> list[int]:
    """The node of every machine, by its number in the instance."""
    names = [node.name for node in data.planned_cluster.nodes]
    if not told:
        return list(range(len(names)))
    wanted = told.split(",")
    for name in wanted:
        if name not in names:
            raise InstanceError(
                f"option machines: found {name!r}, expected nodes of the instance: "
                f"{', '.join(names[:20])}; correct it"
            )
    return [names.index(name) for name in wanted]


def _gpus(
    pool: Pool, numbers: list[int], machines: list[Any], place: str
) -> tuple[str, ...]:
    gpus: list[str] = []
    for machine in machines:
        if type(machine) is not int or not 0 <= machine < len(numbers):
            raise InstanceError(
                f"{place}: found machine {machine!r}, expected 0 to "
                f"{len(numbers) - 1} as the instance has nodes; read it against the "
                "instance it is for"
            )
        gpus += pool.of_node(numbers[machine], 1)
    return tuple(gpus)


def _counts(data: Instance, told: str, size: int, pipelines: int) -> list[int]:
    """Micro-batches of every pipeline."""
    if not told:
        whole, over = divmod(data.workload.global_batch // size, pipelines)
        counts = [whole + (i < over) for i in range(pipelines)]
        if not whole:
            raise InstanceError(
                f"found {pipelines} pipelines, expected at most the micro-batches of "
                f"the global batch, {data.workload.global_batch // size}; read the "
                "plan against the instance it is for"
            )
        return counts
    try:
        counts = [int(word) for word in told.split(",")]
    except ValueError:
        counts = []
    if len(counts) != pipelines or min(counts) < 1:
        raise InstanceError(
            f"option micro_batches: found {told!r}, expected {pipelines} whole numbers "
            "separated by commas, one a pipeline; correct it"
        )
    return counts
