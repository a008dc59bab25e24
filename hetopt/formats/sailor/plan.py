"""Plans as Sailor's planners give them, one or a ranked list, against the instance.

    {"pipeline_list": [{"num_stages": 2, "layers_per_stage": [[0, 1], [2, 3]],
       "tmp_per_stage": [[[[["A100-40", 4, "zone"]], 2], ...], ...], "dp": [2, 2]}],
     "mbs": 4, "iter_time": 1.5}

A stage lists its replicas: the types of the machines of each, and its degree. Types are
named as those of the instance, or by the option `types` (`A100-40:A100-40GB-SXM4`).
Sailor names no machines: a replica takes free GPUs of the first node that has enough of
its type, else of several, which the judge then names. `mbs` sequences are those of a
replica of the first stage; other stages share the same micro-batch. Several pipelines
share the batch equally. Sailor counts embedding and head as its first and last layer:
where the plan has two layers more than the instance, they go with their neighbours.
Claimed is `iter_time` (s), else 1 / `estimated_throughput`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import InstanceError
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance
from ...text.parsing import read_value
from ..importing import placing
from ..importing.claim import Claim
from ..importing.placing import Pool

OPTIONS: dict[str, type] = {"types": str}
_MOST = 10_000  # plans of a list, pipelines, stages, replicas, layers


def claims(path: Path, data: Instance, *, types: str = "") -> Iterator[Claim]:
    """The plans of the file, ranked in its order."""
    told = read_value(path)
    listed = told if isinstance(told, list) else [told]
    if not 0 < len(listed) <= _MOST:
        raise InstanceError(
            f"{path}: found {len(listed)} plans, expected 1 to {_MOST}; correct it"
        )
    named = placing.names(data, types)
    for rank, tree in enumerate(listed, 1):
        place = f"{path}: [{rank - 1}]" if isinstance(told, list) else str(path)
        plan = refused = None
        try:
            plan = _plan(tree, data, named, place)
        except InstanceError as error:
            refused = str(error)
        yield Claim(rank, place, _claimed_us(tree), plan, refused)


def _claimed_us(tree: Any) -> int | None:
    if not isinstance(tree, dict):
        return None
    seconds, rate = tree.get("iter_time"), tree.get("estimated_throughput")
    if (told := _positive(seconds)) is not None:
        return round(told * 10**6)
    told = _positive(rate)
    return None if told is None else round(10**6 / told)


def _positive(value: Any) -> float | None:
    """A number that a time in s can be; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 1e-12 < value < 1e12 else None


def _plan(tree: Any, data: Instance, named: dict[str, str], place: str) -> TrainingPlan:
    rows = tree.get("pipeline_list") if isinstance(tree, dict) else None
    if not isinstance(rows, list) or not 0 < len(rows) <= _MOST:
        raise InstanceError(f"{place}: pipeline_list: expected pipelines; add them")
    share = _whole(tree.get("mbs"), f"{place}: mbs")
    pool = Pool(data)
    pipelines = []
    for i, row in enumerate(rows):
        here = f"{place}: pipeline_list[{i}]"
        spans, stages = _spans(row, data.model.layers, here), _stages(row, here)
        if len(spans) != len(stages):
            raise InstanceError(
                f"{here}: found layers_per_stage of {len(spans)} stages, tmp_per_stage "
                f"of {len(stages)}, expected as many; correct it"
            )
        size = share * len(stages[0])
        made = (
            Stage(layers=span, replicas=_replicas(stage, size, pool, named, at))
            for j, (span, stage) in enumerate(zip(spans, stages, strict=True))
            for at in [f"{here}.tmp_per_stage[{j}]"]
        )
        count = data.workload.global_batch // (size * len(rows))
        if not count:
            raise InstanceError(
                f"{here}: found micro-batches of {size} sequences in {len(rows)} "
                f"pipelines, the global batch has {data.workload.global_batch}; read "
                "it against the instance it is for"
            )
        pipelines.append(
            Pipeline(micro_batches=count, micro_batch_size=size, stages=tuple(made))
        )
    return TrainingPlan(pipelines=tuple(pipelines))


def _spans(row: Any, layers: int, place: str) -> list[tuple[int, int]]:
    """First layer and one past the last of every stage, by the instance's count."""
    cut = row.get("layers_per_stage") if isinstance(row, dict) else None
    if not isinstance(cut, list) or not 0 < len(cut) <= _MOST:
        raise InstanceError(f"{place}: layers_per_stage: expected lists; add them")
    spans, next_one = [], 0
    for j, held in enumerate(cut):
        right = isinstance(held, list) and all(
            type(x) is int and 0 <= x <= _MOST for x in held
        )
        if not right or held != list(
            range(held[0], held[0] + len(held)) if held else []
        ):
            raise InstanceError(
                f"{place}.layers_per_stage[{j}]: expected numbers of layers in a row; "
                "correct it"
            )
        first = held[0] if held else next_one
        next_one = first + len(held)
        spans.append((first, next_one))
    if max(last for _, last in spans) != layers + 2:
        return spans
    clipped = [[min(max(x - 1, 0), layers) for x in span] for span in spans]
    return [(first, last) for first, last in clipped]


def _stages(row: dict[str, Any], place: str) -> list[list[tuple[str, int]]]:
    """Type and degree of every replica of every stage."""
    stages = row.get("tmp_per_stage")
    if not isinstance(stages, list) or not 0 < len(stages) <= _MOST:
        raise InstanceError(f"{place}: tmp_per_stage: expected lists; add them")
    found = []
    for j, stage in enumerate(stages):
        at = f"{place}.tmp_per_stage[{j}]"
        if not isinstance(stage, list) or not 0 < len(stage) <= _MOST:
            raise InstanceError(f"{at}: expected a list of replicas; correct it")
        found.append([_replica(one, f"{at}[{r}]") for r, one in enumerate(stage)])
    return found


def _replica(one: Any, place: str) -> tuple[str, int]:
    """`[[[type, GPUs a node, zone], ...], degree]`."""
    try:
        machines, degree = one
        kinds = [kind for kind, *_ in machines]
    except (TypeError, ValueError, LookupError):
        kinds = []
    words = all(isinstance(kind, str) for kind in kinds)
    if not kinds or not words or any(isinstance(m, str) for m in machines):
        raise InstanceError(
            f"{place}: expected [[[TYPE, GPUS, ZONE], ...], DEGREE]; correct it"
        )
    if len(set(kinds)) > 1:
        raise InstanceError(
            f"{place}: found types {', '.join(sorted(set(kinds)))} in one replica, "
            "expected one; a tensor-parallel group of ours has GPUs of one type"
        )
    return kinds[0], _whole(degree, f"{place}[1]")


def _whole(value: Any, place: str) -> int:
    if type(value) is not int or not 0 < value <= _MOST:
        raise InstanceError(
            f"{place}: found {value!r}, expected a whole number from 1 to {_MOST}; "
            "correct it"
        )
    return value


def _replicas(
    stage: list[tuple[str, int]],
    size: int,
    pool: Pool,
    named: dict[str, str],
    place: str,
) -> tuple[Replica, ...]:
    share, over = divmod(size, len(stage))
    if not share:
        raise InstanceError(
            f"{place}: found {len(stage)} replicas for a micro-batch of {size} "
            "sequences, expected fewer; correct it"
        )
    made = []
    for r, (kind, degree) in enumerate(stage):
        known = named.get(kind.casefold().replace("_", "-")) or named.get(
            kind.casefold()
        )
        if known is None:
            raise InstanceError(
                f"{place}[{r}]: found type {kind!r}, expected one of the instance: "
                f"{', '.join(sorted(set(named.values())))}; name it with "
                f"types={kind}:NAME"
            )
        gpus = pool.of_type(known, degree, f"{place}[{r}]")
        made.append(Replica(gpus=gpus, samples=share + (r < over)))
    return tuple(made)
