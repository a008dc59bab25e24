"""Names of generated data, usable wherever an instance is.

    generated:FAMILY/SIZE/SEED

    equal unequal islands      a training plan; SIZE is a word of `files.clusters`
    pairwise tight_memory      or a number of GPUs: `generated:islands/64/7`
    steep
    offers many_offers         provisioning, of that size
    grouping                   SIZE GPUs of 3 or 4 types into groups
    partition                  SIZE layers on a third as many stages, in given order
    queue                      SIZE jobs for the clusters of Frenzy, in turn

Equal names give equal data, whatever the machine and the version of Python.
"""

from random import Random
from typing import Any

from .. import catalogue
from ..errors import UnknownName
from ..problems import device_grouping, layer_partition
from ..problems.device_grouping import DeviceType
from ..problems.layer_partition import Stage
from ..schema import Instance
from .clusters import FAMILIES, generate

PREFIX = "generated:"
# Sizes of the families that `generate` does not make: least and most.
OTHERS = {"grouping": (2, 10_000), "partition": (3, 1000), "queue": (1, 10_000)}
MOST_SEED = 10**9


def instance(name: str) -> Instance | None:
    """The instance of a name; None for a family that is no instance.

    `UnknownName` for a name of another form, a family or a size that there is not.
    """
    family, size, seed = _parts(name)
    if family in OTHERS:
        return None
    return generate(family, size=size, seed=seed).model_copy(update={"name": name})


def posed(name: str) -> tuple[str, Any]:
    """Problem and data of a name of a family that is no instance."""
    family, size, seed = _parts(name)
    rng = Random(f"hetopt/{family}/{size}/{seed}")
    if family == "grouping":
        return "device_grouping", _grouping(rng, int(size))
    if family == "partition":
        return "layer_partition", _partition(rng, int(size))
    return "job_scheduling", _queue(name, int(size), seed)


def _parts(name: str) -> tuple[str, str, int]:
    parts = name.removeprefix(PREFIX).split("/")
    example = "generated:FAMILY/SIZE/SEED, as in generated:islands/64/7"
    if len(parts) != 3:
        raise UnknownName("instance", name, [example])
    family, size, seed = parts
    families = [*FAMILIES, *OTHERS]
    if family not in families:
        raise UnknownName("family of generated instances", family, families)
    if not _is_number(seed, 0, MOST_SEED):
        raise UnknownName("seed", seed, [f"a whole number from 0 to {MOST_SEED}"])
    if family in OTHERS and not _is_number(size, *OTHERS[family]):
        least, most = OTHERS[family]
        raise UnknownName("size", size, [f"a whole number from {least} to {most}"])
    return family, size, int(seed)


def _is_number(text: str, least: int, most: int) -> bool:
    plain = text.isascii() and text.isdigit() and len(text) <= 10
    return plain and least <= int(text) <= most


# --- problems that are stated by themselves --------------------------------------


def _grouping(rng: Random, gpus: int) -> device_grouping.Data:
    """AutoHet's problem: a floor of two or three GPUs of 80 GiB, 16 micro-batches."""
    cards = catalogue.family("grouping")
    types = rng.sample([*cards], min(gpus, rng.choice((3, 4))))
    cuts = sorted(rng.sample(range(1, gpus), len(types) - 1))
    counts = [b - a for a, b in zip([0, *cuts], [*cuts, gpus], strict=True)]
    mib = {name: int(cards[name].memory_gib * 1024) for name in types}
    room = sum(n * mib[name] for n, name in zip(counts, types, strict=True))
    return device_grouping.Data(
        gpus=tuple(
            DeviceType(
                type=name,
                count=count,
                gflops=int(cards[name].tflops * 1000),
                memory_mib=mib[name],
            )
            for name, count in zip(types, counts, strict=True)
        ),
        minimum_memory_mib=min(137_216, room),
        micro_batches=16,
    )


def _partition(rng: Random, layers: int) -> layer_partition.Data:
    """Uneven layers; stages of four kinds, memory from barely to amply enough.

    Times are short, so that solvers that compute in floats can prove an optimum too.
    """
    work = [rng.randint(80, 120) for _ in range(layers)]
    stages = max(1, layers // 3)
    share = 330 * layers // stages
    kinds = [
        {
            "speed": rng.randint(10, 100),
            "memory_mib": rng.randint(5 * share // 4, 5 * share // 2),
            "hop_us": rng.randint(0, 300),
        }
        for _ in range(min(4, stages))
    ]
    drawn = [rng.choice(kinds) for _ in range(stages)]
    return layer_partition.Data(
        layer_mib=tuple(rng.randint(300, 350) for _ in work),
        in_flight_mib=(5,) * layers,
        micro_batches=64,
        objective="iteration",
        order="given",
        stages=tuple(
            Stage(
                name=f"s{n}",
                memory_mib=kind["memory_mib"] + 5 * layers,
                hop_us=kind["hop_us"],
                layer_us=tuple(kind["speed"] * w // 10 for w in work),
            )
            for n, kind in enumerate(drawn)
        ),
    )


def _queue(name: str, jobs: int, seed: int) -> Any:
    """GPT-2 and BERT jobs on Frenzy's simulated cluster, or on its testbed."""
    from ..scheduling import workloads
    from ..scheduling.catalogue import simulator, testbed

    if seed % 2:
        return workloads.queue(jobs, seed, testbed(), name, every_s=300.0)
    return workloads.queue(jobs, seed, simulator(), name)
