"""The clusters of Metis's benchmark: generated ones, and the paper's by name."""

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import NamedTuple

from hetopt.schema import Instance

PAIRS = ("p100-t4", "t4-v100", "p100-v100")
MODELS = {
    "gpt3": {4: "1.3b", 8: "2.6b", 16: "6.7b", 32: "15b"},
    "moe": {4: "1.3b", 8: "2.4b", 16: "10b", 32: "27b"},
    "wide-resnet": {4: "1b", 8: "2b", 16: "4b", 32: "6.8b"},
}
NON_UNIFORM = ("a-gpt3-1.3b", "b-gpt3-1.3b", "c-gpt3-2.6b", "d-gpt3-2.6b")
NODES = ((4, 4), (2, 4, 2), (4, 4, 4, 4), (1, 1, 2, 4))
SLOWER = (1.0, 1.3, 2.0, 4.0, 8.0)
ROOM = {"tight": 1.6, "loose": 4.0}


class Made(NamedTuple):
    """A generated instance and what it was made of."""

    instance: Instance
    gpus: int
    slower: float
    memory: str


def uniform() -> Iterator[tuple[str, str, int, str]]:
    """(model, pair of types, GPUs, name) of figure 4."""
    for model, pair in product(MODELS, PAIRS):
        for gpus, size in MODELS[model].items():
            yield model, pair, gpus, f"metis/{pair}-{gpus}-{model}-{size}"


def generated(seeds: int) -> Iterator[Made]:
    """Clusters of 8 and 16 GPUs, the second type slower, memory tight or loose."""
    for counts, slower, memory, seed in product(NODES, SLOWER, ROOM, range(seeds)):
        rng = Random(f"metis/{counts}/{slower}/{memory}/{seed}")
        hidden, layers = rng.choice((1024, 1536, 2048)), rng.randint(12, 32)
        parameters = 12 * hidden * hidden
        states_gib = 16 * parameters * layers / 2**30
        each = states_gib * ROOM[memory] / sum(counts)
        peak = rng.choice((60.0, 120.0, 300.0))
        gpus = {
            "fast": {"peak_tflops": peak, "memory_gib": round(each, 3)},
            "slow": {
                "peak_tflops": round(peak / slower, 3),
                "memory_gib": round(each * rng.choice((1.0, 1.0, 0.7)), 3),
            },
        }
        kinds = ["fast" if i % 2 == 0 else "slow" for i in range(len(counts))]
        nodes = tuple(
            {
                "name": f"node{i}",
                "gpu": kind,
                "count": count,
                **(
                    {"intra_gbytes_per_s": rng.choice((12.0, 130.0))}
                    if count > 1
                    else {}
                ),
            }
            for i, (kind, count) in enumerate(zip(kinds, counts, strict=True))
        )
        shape = "-".join(map(str, counts))
        document = {
            "name": f"generated/metis-{shape}-{slower}-{memory}-{seed}",
            "model": {
                "name": f"gpt-{layers}x{hidden}",
                "layers": layers,
                "hidden": hidden,
                "heads": hidden // 64,
                "vocabulary": 0,
                "parameters_per_layer": parameters,
            },
            "cluster": {
                "gpus": gpus,
                "nodes": nodes,
                "inter": {"gbytes_per_s": rng.choice((0.7, 2.0, 5.0))},
            },
            "workload": {
                "sequence_length": 1024,
                "global_batch": 64,
                "micro_batch_sizes": (1, 2, 4, 8),
                "costs": {"head": "omit", "flash": True, "sync": "bottleneck"},
            },
        }
        instance = Instance.model_validate(document)
        yield Made(instance, sum(counts), slower, memory)
