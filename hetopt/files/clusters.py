"""Seeded random instances: the same family, size and seed give the same instance.

    equal          one GPU type, equal nodes, one bandwidth between nodes
    unequal        two to four types, nodes of different sizes
    islands        unequal nodes in groups with fast links, slow links between groups
    pairwise       unequal nodes, the link between every two of them measured
    tight_memory   as unequal, all memory together 1.1 to 1.6 times the model's states
    steep          as unequal, each layer some per cent larger than the one before
    offers         GPUs to rent, with a deadline, a budget or neither
    many_offers    the same with 12 to 24 offers: types, each from several sellers

A size is a word, or a number of GPUs from 2 to 10,000, which is then met exactly (by
the quotas of all offers together, where each has one at least).
GPUs are drawn from a catalogue of real ones; bandwidths and prices are drawn around
real ones. Nothing is promised about feasibility: `tight_memory` and offers are
infeasible now and then, which tests need too. Other problems than training plans and
provisioning, and names for all of them, are in `hetopt.files.generated`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from .. import catalogue
from ..errors import UnknownName
from ..schema import CostSettings, Instance
from ..text.documents import Document

GIB = 2**30


@dataclass(frozen=True)
class _Size:
    nodes: tuple[int, int]
    counts: tuple[int, ...]
    gpus: int
    layers: tuple[int, int]
    hidden: tuple[int, ...]
    batch: tuple[int, int]
    micro_batch: tuple[tuple[int, ...], ...]
    exactly: bool = False  # whether there are to be `gpus` GPUs, not at most that


_SIZES = {
    "tiny": _Size((2, 3), (1, 2, 4), 8, (3, 8), (1024, 2048), (2, 12), ((1,), (1, 2))),
    "small": _Size(
        (3, 6), (2, 4), 24, (12, 24), (2048, 3072), (32, 96), ((1,), (1, 2))
    ),
    "medium": _Size(
        (8, 14), (4, 8), 112, (32, 48), (4096, 5120), (256, 512), ((1,), (1, 2, 4))
    ),
    "large": _Size(
        (32, 60), (4, 8), 480, (48, 80), (6144, 8192), (1024, 2048), ((1, 2),)
    ),
    "huge": _Size(
        (256, 512), (8,), 4096, (80, 126), (8192, 16384), (4096, 8192), ((1,),)
    ),
}

# The cost settings of the papers; each instance draws one unless it is given one.
_COSTS: tuple[dict[str, object], ...] = (
    {"bytes_per_parameter": 8, "head": "omit", "activations": "checkpoint"}
    | {"in_flight": "one"},
    {},
    {"recompute": "none", "flash": True, "sync": "bottleneck"},
    {"activations": "checkpoint", "head": "omit", "sync_overlap": "backward"},
    {"pipeline": "lockstep", "pipeline_factor": 1.8, "sync_factor": 1.1},
)

_RENTED = ("offers", "many_offers")
FAMILIES = (
    *("equal", "unequal", "islands", "pairwise", "tight_memory", "steep"),
    *_RENTED,
)
SIZES = tuple(_SIZES)
MOST_GPUS = 10_000


def generate(
    family: str, *, size: str = "tiny", seed: int, costs: CostSettings | None = None
) -> Instance:
    """A random instance of `family` and `size`; `costs` replaces the drawn settings.

    `tiny` has 2 or 3 nodes, at most 8 GPUs and 3 to 8 layers; `huge` up to 4096 GPUs;
    "64" has 64. `UnknownName` for a family or a size that there is not.
    """
    if family not in FAMILIES:
        raise UnknownName("family", family, list(FAMILIES))
    scale = _scale(size)
    # Seeding with text is stable across Python versions and hash seeds.
    rng = Random(f"hetopt/{family}/{size}/{seed}")
    settings = costs or CostSettings(**_draw(rng, family))
    model = _model(rng, family, scale)
    workload = {
        "sequence_length": rng.choice((512, 1024, 2048, 4096)),
        "global_batch": rng.randint(*scale.batch),
        "micro_batch_sizes": rng.choice(scale.micro_batch),
        "costs": settings,
    }
    made: Document = {
        "name": f"generated/{family}-{size}-{seed}",
        "source": f"hetopt.files.clusters: family {family}, size {size}, seed {seed}",
        "model": model,
        "workload": workload,
    }
    if family in _RENTED:
        made |= _offers(rng, family, scale, made)
    else:
        made["cluster"] = _cluster(rng, family, scale, _state_bytes(model, settings))
    return Instance.model_validate(made)


def _draw(rng: Random, family: str) -> Document:
    """Draw cost settings; prices of offers leave those of lockstep out."""
    settings = rng.choice(_COSTS)
    lockstep = "pipeline" in settings
    return {} if lockstep and family in _RENTED else settings


def _scale(size: str) -> _Size:
    """The ranges of a size; a number takes those of the first word with room for it."""
    if size in _SIZES:
        return _SIZES[size]
    if not (size.isascii() and size.isdigit() and 2 <= int(size) <= MOST_GPUS):
        whole = f"a number of GPUs from 2 to {MOST_GPUS}"
        raise UnknownName("size", size, [*SIZES, whole])
    gpus = int(size)
    fitting = (scale for scale in _SIZES.values() if gpus <= scale.gpus)
    return replace(next(fitting, _SIZES["huge"]), gpus=gpus, exactly=True)


def _model(rng: Random, family: str, scale: _Size) -> dict[str, object]:
    hidden, layers = rng.choice(scale.hidden), rng.randint(*scale.layers)
    model: Document = {
        "name": f"random-{layers}x{hidden}",
        "layers": layers,
        "hidden": hidden,
        "heads": hidden // 128,
        "vocabulary": rng.choice((1000, 32000)),
        "tied_embeddings": rng.random() < 0.5,
    }
    if family == "steep":
        growth = rng.choice((1.1, 1.5, 2.0)) ** (8 / layers)
        shape = [growth**layer for layer in range(layers)]
        total = 12 * hidden * hidden * layers
        model["layer_parameters"] = tuple(int(total * x / sum(shape)) for x in shape)
    return model


def _state_bytes(model: Document, costs: CostSettings) -> int:
    parameters = 12 * model["hidden"] ** 2 * model["layers"]
    if costs.compute.head == "include":
        parameters += 2 * model["vocabulary"] * model["hidden"]
    return int(parameters * costs.memory.bytes_per_parameter)


def _cluster(rng: Random, family: str, scale: _Size, states: int) -> Document:
    cards = catalogue.family("clusters")
    types = rng.sample(sorted(cards), 1 if family == "equal" else rng.randint(2, 4))
    nodes = _nodes(rng, family, scale, types)
    used = {node["gpu"] for node in nodes}
    # All memory together holds the states this many times; real sizes where roomier.
    wanted = rng.uniform(1.1, 1.6) if family == "tight_memory" else 2.0
    there = sum(cards[n["gpu"]].memory_gib * n["count"] for n in nodes) * GIB
    factor = wanted * states / there
    if family != "tight_memory":
        factor = max(1.0, factor)
    gpus = {
        name: {
            "peak_tflops": cards[name].tflops,
            "memory_gib": round(cards[name].memory_gib * factor, 3),
            "efficiency": round(rng.uniform(0.4, 1.0), 2),
            "usd_per_hour": cards[name].usd_per_hour,
        }
        for name in types
        if name in used
    }
    return {"gpus": gpus, "nodes": tuple(nodes), "inter": _inter(rng, family, nodes)}


def _nodes(rng: Random, family: str, scale: _Size, types: list[str]) -> list[Document]:
    cards = catalogue.family("clusters")
    draw = _exact_counts if scale.exactly else _counts
    nodes: list[Document] = []
    for index, count in enumerate(draw(rng, family, scale)):
        gpu = types[index] if index < len(types) else rng.choice(types)
        node = {"name": f"node{index}", "gpu": gpu, "count": count}
        if count > 1:
            node["intra_gbytes_per_s"] = cards[gpu].intra_gbytes_per_s
            node["intra_latency_us"] = rng.choice((0, 2, 5))
        nodes.append(node)
    return nodes


def _counts(rng: Random, family: str, scale: _Size) -> Iterator[int]:
    """GPUs of each node, at most `scale.gpus` in all."""
    number = rng.randint(*scale.nodes)
    same = rng.choice([c for c in scale.counts if number * c <= scale.gpus])
    room = scale.gpus
    for index in range(number):
        spare = room - (number - index - 1) * min(scale.counts)
        drawn = rng.choice([c for c in scale.counts if c <= spare])
        count = same if family == "equal" else drawn
        room -= count
        yield count


def _exact_counts(rng: Random, family: str, scale: _Size) -> Iterator[int]:
    """GPUs of each node, exactly `scale.gpus` in all, on two nodes at least."""
    if family == "equal":
        same = max(
            c for c in (1, *scale.counts) if scale.gpus % c == 0 < scale.gpus - c
        )
        yield from [same] * (scale.gpus // same)
        return
    left = scale.gpus
    while left:
        # A node never takes all: unequal fleets need a second one for a second type.
        most = left - 1 if left == scale.gpus else left
        fitting = [c for c in scale.counts if c <= most]
        count = rng.choice(fitting) if fitting else 1
        left -= count
        yield count


def _inter(rng: Random, family: str, nodes: list[dict[str, object]]) -> Document:
    slow = round(rng.choice((0.1, 0.7, 1.25, 5.0, 25.0)) * rng.uniform(0.8, 1.2), 3)
    inter: Document = {"gbytes_per_s": slow, "latency_us": rng.choice((0, 5, 50))}
    if family == "islands":
        inter["pairs"] = _fast_pairs(rng, nodes, slow)
    if family == "pairwise":
        return {"pairs": tuple(_measured_pairs(rng, nodes, inter))}
    return inter


def _measured_pairs(
    rng: Random, nodes: list[Document], usual: Document
) -> Iterator[tuple[str, str, float, float]]:
    """Links of every two nodes: faster in a rack of 32, in a hall of 256; uneven."""
    rate, latency = usual["gbytes_per_s"], usual["latency_us"]
    for i, a in enumerate(nodes):
        for j, b in enumerate(nodes[:i]):
            near = 4 if i // 32 == j // 32 else 2 if i // 256 == j // 256 else 1
            measured = round(near * rate * rng.uniform(0.8, 1.0), 2)
            yield b["name"], a["name"], max(measured, 0.01), latency


def _fast_pairs(
    rng: Random, nodes: list[dict[str, object]], slow: float
) -> tuple[dict[str, object], ...]:
    """Fast links inside islands of two to four neighbouring nodes."""
    pairs, first = [], 0
    fast = round(slow * rng.choice((5, 10, 40)), 3)
    while first < len(nodes):
        island = [n["name"] for n in nodes[first : first + rng.randint(2, 4)]]
        first += len(island)
        pairs += [
            {"first": a, "second": b, "gbytes_per_s": fast, "latency_us": 2}
            for i, a in enumerate(island)
            for b in island[i + 1 :]
        ]
    return tuple(pairs)


def _offers(rng: Random, family: str, scale: _Size, made: Document) -> Document:
    offers = tuple(_listed_offers(rng, family, scale))
    model, workload = made["model"], made["workload"]
    tokens = workload["global_batch"] * workload["sequence_length"]
    flops = 8 * 12 * model["hidden"] ** 2 * model["layers"] * tokens
    speed = sum(o["quota"] * o["peak_tflops"] * o["efficiency"] for o in offers) * 1e12
    iterations = rng.choice((1, 100, 10_000))
    seconds = round(iterations * flops / speed * rng.uniform(1.5, 12), 3)
    usd = seconds / 3600 * sum(o["quota"] * o["usd_per_hour"] for o in offers)
    wish = rng.choice(("deadline_s", "deadline_s", "budget_usd", None))
    value = {"deadline_s": seconds, "budget_usd": round(usd, 6)}
    degrees = rng.choice(((1,), (1, 2), (1, 2, 4)))
    micro_batches = rng.randint(1, min(8, workload["global_batch"]))
    if scale.exactly:  # at most 64 sequences, so that a layer stays below 1000 s
        micro_batches = max(micro_batches, workload["global_batch"] // 64)
    return {
        "offers": offers,
        "workload": {**workload, "iterations": iterations},
        "requirements": {wish: max(value[wish], 0.001)} if wish else {},
        "search": {
            "micro_batches": micro_batches,
            "data_parallel": degrees,
            "max_stages": min(rng.randint(2, 16), model["layers"]),
        },
    }


def _listed_offers(rng: Random, family: str, scale: _Size) -> Iterator[Document]:
    """Offers of two to four types, or of many sellers of all types."""
    cards = catalogue.family("clusters")
    sellers, many = 1, (2, 4)
    if family != "offers":
        sellers, many = rng.randint(3, 4), (4, 6)
    types = rng.sample(sorted(cards), rng.randint(*many))
    number = len(types) * sellers
    quota = max(2, scale.gpus // number)
    left = max(scale.gpus, number)
    for index in range(number):
        gpu, seller = types[index // sellers], index % sellers
        count = rng.randint(1, quota)
        if scale.exactly:
            count = left if index == number - 1 else min(quota, left - number + index)
            count = max(1, count)
        left -= count
        usd = cards[gpu].usd_per_hour
        assert usd is not None, "every card of the family has a price"
        yield {
            "gpu": gpu if sellers == 1 else f"{gpu}@seller{seller}",
            "quota": count,
            "usd_per_hour": round(usd * rng.uniform(0.7, 1.5), 2),
            "peak_tflops": cards[gpu].tflops,
            "memory_gib": cards[gpu].memory_gib,
            "efficiency": round(rng.uniform(0.4, 0.8), 2),
            "gbytes_per_s": rng.choice((0.3125, 1.25, 3.125)),
        }
