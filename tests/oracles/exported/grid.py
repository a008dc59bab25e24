"""A grid of ranks that torchruns start, as a plan."""

import re
from collections.abc import Sequence

from hetopt.errors import InstanceError
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan

Parts = list[tuple[str, list[int]]]
HOST = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,253}[A-Za-z0-9])?"


def staged(
    gpus: Sequence[str],
    layers: Sequence[int],
    shapes: Sequence[tuple[int, int, int]],
    micro_batches: int,
) -> TrainingPlan:
    """The plan of GPUs in order of ranks; `shapes` are (degree, replicas, samples)."""
    stages, first, used = [], 0, 0
    for count, (degree, replicas, samples) in zip(layers, shapes, strict=True):
        groups = []
        for _ in range(replicas):
            groups.append(
                Replica(gpus=tuple(gpus[used : used + degree]), samples=samples)
            )
            used += degree
        stages.append(Stage(layers=(first, first + count), replicas=tuple(groups)))
        first += count
    _, replicas, samples = shapes[0]
    return TrainingPlan(
        pipelines=(
            Pipeline(
                micro_batches=micro_batches,
                micro_batch_size=replicas * samples,
                stages=tuple(stages),
            ),
        )
    )


def torchrun_parts(text: str, where: str) -> Parts:
    """Host and GPU indices of every torchrun, which must count up without a gap."""
    pattern = (
        rf'ssh -ntt (?P<host>{HOST}) "\$here CUDA_VISIBLE_DEVICES=(?P<gpus>[0-9,]+) '
        r"torchrun --nnodes (?P<of>\d+) --node-rank (?P<rank>\d+) "
        r"--nproc-per-node (?P<n>\d+) "
    )
    found = list(re.finditer(pattern, text))
    parts = []
    for number, match in enumerate(found):
        indices = [int(index) for index in match["gpus"].split(",")]
        if (int(match["rank"]), int(match["of"])) != (number, len(found)):
            raise InstanceError(
                f"{where}: found node rank {match['rank']} out of order"
            )
        if int(match["n"]) != len(indices):
            raise InstanceError(f"{where}: found {match['n']} ranks on {match['gpus']}")
        parts.append((match["host"], indices))
    return parts


def twice_held(parts: Parts) -> list[str]:
    """A complaint where a GPU runs two ranks."""
    held = [(host, index) for host, indices in parts for index in indices]
    return ["a GPU runs two ranks"] if len(set(held)) < len(held) else []


def gpus_of(parts: Parts) -> list[str]:
    """The GPUs in order of their ranks."""
    return [f"{host}:{index}" for host, indices in parts for index in indices]
