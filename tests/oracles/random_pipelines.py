"""Random small clusters with every cost setting, and random plans on them."""

from itertools import pairwise
from random import Random
from typing import Any

from small_instances import small

from hetopt.schema import Instance
from hetopt.search.fast_cost import Pipe, Slot


def random_instance(
    random: Random, *, uniform: bool = False, later: bool = False
) -> Instance:
    """Up to 4 nodes of up to 4 GPUs, up to 7 layers; `uniform` keeps it plain.

    With `later`, settings that exact methods do not state are drawn as well.
    """
    types = {
        f"T{i}": {
            "peak_tflops": random.choice([10.0, 37.5, 165.2]),
            "memory_gib": random.choice([0.03, 0.1, 2.0]),
            "efficiency": random.choice([1.0, 0.47]),
        }
        for i in range(random.randint(1, 2))
    }
    if later:
        for gpu in types.values():
            gpu["memory_gbytes_per_s"] = random.choice([None, 900.0, 2039.0])
    nodes: list[dict[str, Any]] = [
        {
            "name": f"n{i}",
            "gpu": gpu,
            "count": random.choice([1, 2, 3, 4]),
            "intra_gbytes_per_s": random.choice([24.0, 200.0]),
            "intra_latency_us": random.choice([0, 5.5]),
            "adapters": random.choice([None, None, 1, 2, 3, 4]) if later else None,
        }
        for i, gpu in enumerate([*types, *random.choices(list(types), k=2)])
    ]
    inter: dict[str, Any] = {"gbytes_per_s": 0.7, "latency_us": random.choice([0, 9])}
    if not uniform and random.random() < 0.4:
        inter["pairs"] = [{"first": "n0", "second": "n1", "gbytes_per_s": 0.3}]
    layers = random.randint(2, 7)
    model: dict[str, Any] = {"layers": layers, "hidden": 256, "heads": 4}
    if not uniform and random.random() < 0.4:
        model["layer_parameters"] = [
            random.randint(10**5, 9 * 10**6) for _ in range(layers)
        ]
    if later:
        model |= random_architecture(random)
    costs = random_costs(random) | (later_costs(random) if later else {})
    if costs.get("interleave", 1) > 1:
        costs |= {"in_flight": random.choice(["1f1b", "one"]), "pipeline": "critical"}
    if costs.get("precision"):
        del costs["bytes_per_parameter"]
    if costs.get("fused_loss"):
        costs["logit_gradients"] = False
    return small(
        *(nodes, types),
        model=model,
        inter=inter,
        name="random",
        global_batch=random.randint(8, 20),
        micro_batch_sizes=(1,) if uniform else (1, 2),
        costs=costs,
    )


def random_costs(random: Random) -> dict[str, Any]:
    """Every setting of the cost model at one of its values."""
    return {
        "bytes_per_parameter": random.choice([8, 16]),
        "head": random.choice(["include", "omit"]),
        "recompute": random.choice(["full", "none"]),
        "activations": random.choice(["standard", "checkpoint"]),
        "in_flight": random.choice(["1f1b", "gpipe", "one"]),
        "sequence_parallel": random.random() < 0.5,
        "flash": random.random() < 0.5,
        "pipeline": random.choice(["critical", "lockstep"]),
        "pipeline_factor": random.choice([1, 1.8]),
        "sync": random.choice(["ring", "bottleneck"]),
        "sync_overlap": random.choice(["none", "backward"]),
        "sync_factor": random.choice([1, 1.65]),
        "reserve_mib": random.choice([0, 10]),
    }


def later_costs(random: Random) -> dict[str, Any]:
    """Precision, ZeRO, selective recomputation, interleaving and the like."""
    names = [None, "fp32", "bf16", "bf16_mixed", "bf16_fp32_gradients"]
    return {
        "precision": random.choice(names),
        "zero": random.choice([0, 1, 2, 3]),
        "recompute": random.choice(["full", "selective", "none"]),
        "activations": random.choice(["standard", "checkpoint"]),
        "fused_loss": random.random() < 0.5,
        "interleave": random.choice([1, 1, 2, 3]),
        "hops": random.choice(["sender", "both"]),
        "logit_gradients": random.random() < 0.3,
        "tied_sync": random.random() < 0.5,
        "iteration_overhead_us": random.choice([0, 12.5, 4000]),
        "gathers": random.choice(["iteration", "micro_batch"]),
    }


def random_architecture(random: Random) -> dict[str, Any]:
    """What decides the tensors that a layer keeps."""
    return {
        "activation": random.choice(["gelu", "relu", "silu"]),
        "norm": random.choice(["layer", "rms"]),
        "dropout": random.random() < 0.5,
        "tied_embeddings": random.random() < 0.3,
        "gated": random.random() < 0.3,
        "kv_heads": random.choice([None, 1, 2]),
        "intermediate": random.choice([None, 700]),
    }


def random_pipes(random: Random, instance: Instance) -> list[Pipe]:
    """A structurally valid plan in compact form; it may need too much memory."""
    free = {i: n.count for i, n in enumerate(instance.planned_cluster.nodes)}
    layers, batch = instance.model.layers, instance.workload.global_batch
    chains: list[tuple[Slot, ...]] = []
    while len(chains) < 4 and any(free.values()):
        total = min(layers, random.randint(1, 4))
        cuts = sorted(random.sample(range(1, layers), min(total, layers) - 1))
        slots = []
        for first, last in pairwise([0, *cuts, layers]):
            open_nodes = [i for i, left in free.items() if left]
            if not open_nodes:
                break
            node = random.choice(open_nodes)
            t = random.randint(1, free[node])
            free[node] -= t
            slots.append(Slot(node, t, first, last))
        if slots and slots[-1].last != layers:
            slots[-1] = slots[-1]._replace(last=layers)
        if slots:
            chains.append(tuple(slots))
    chains = chains[: batch // 2]
    sizes = [random.choice(instance.workload.micro_batch_sizes) for _ in chains]
    if batch % 2:
        sizes[0] = 1
    return _share(random, chains, sizes, batch)


def _share(
    random: Random, chains: list[tuple[Slot, ...]], sizes: list[int], batch: int
) -> list[Pipe]:
    counts = [1] * len(chains)
    while (left := batch - sum(map(int.__mul__, counts, sizes))) > 0:
        open_ones = [i for i, size in enumerate(sizes) if size <= left]
        if not open_ones:  # one sequence is left and all sizes are 2
            sizes[0], counts[0] = 1, counts[0] * 2 + 1
            break
        counts[random.choice(open_ones)] += 1
    return [Pipe(n, b, s) for n, b, s in zip(counts, sizes, chains, strict=True)]
