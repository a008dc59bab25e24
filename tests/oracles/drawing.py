"""Random instances over every setting of the schema, as JSON.

Each field of a record has its own way of being drawn, in `FIELDS`; records are made by
walking the fields that pydantic knows, so that a field without a way is an error, not
a gap. `Draw.spice` is how likely a setting is away from its default; with `extreme`
numbers are at the limits of the schema now and then. What one setting forbids of
another is mended at the end, one rule a line (`_mended`).

Scales fit each other: a layer takes about a millisecond, a gradient as long on a link,
and memory is drawn as a multiple of the states, so that it binds, or is ample.

What is rented has drawers of its own: offers, requirements, and of a workload
`restart_s` and `checkpoint_every_s`, in `random_data`; what calibrated times need of a
GPU type (`sheet`) is in `random_calibrations`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from typing import Any

from random_calibrations import calibration, sheet

from hetopt import schema
from hetopt.schema import Instance

Tree = dict[str, Any]

RULES = ["full", "selective", "none", "mlp", "core_attn+moe", "layernorm+moe_act"]
RULES += ["core_attn+mla_up_proj+shared_experts"]
KINDS = ["attention+dense", "window+dense", "attention+experts", "window+experts"]
KINDS += ["mamba+dense", "attention", "window", "mamba", "dense", "experts"]
KINDS += ["mamba1+experts", "linear+dense", "convolution+dense"]
KINDS += ["attention+mamba+dense", "attention+dense+window+dense+experts"]
MIXERS = {
    "mamba": schema.MambaMixer,
    "mamba1": schema.SelectiveMixer,
    "linear": schema.LinearAttention,
    "convolution": schema.ShortConvolution,
}
MOST_GIB, MOST_TFLOPS = 976_562.0, 999_999.0  # the largest that the schema takes


@dataclass
class Draw:
    """What is being drawn: sizes that were decided, and the source of chance."""

    rng: Random
    counts: tuple[int, ...]  # GPUs of each node
    layers: int
    batch: int
    sizes: tuple[int, ...]
    spice: float
    extreme: bool = False
    profiled: bool = False
    calibrated: bool = False
    weighed: bool = False  # activations are calibrated, too
    shaped: bool = False  # the model has matrices for LoRA's adapters
    divides: bool = False  # plans choose how they are divided, most likely
    experts: int = 1  # of the model
    even: bool = False  # nodes that are alike, where they can be
    gpus: list[str] = field(default_factory=list)  # the type of each node
    node: int = 0  # the one that is drawn
    states_gib: float = 1.0  # of one copy of the model

    def maybe(self, default: Any, *others: Any) -> Any:
        """`default`, or another value where the spice says so."""
        return self.rng.choice(others) if self.rng.random() < self.spice else default

    def some(self, *values: Any) -> list[Any]:
        """Some of the values in any order, or none where the spice says so."""
        wanted = 0.5 if self.divides else self.spice
        if not values or self.rng.random() >= wanted:
            return []
        return self.rng.sample(values, self.rng.randint(1, len(values)))

    def limit(self, value: Any, *limits: Any) -> Any:
        """`value`, or now and then a limit of the schema, where that is wanted."""
        if self.extreme and self.rng.random() < 0.15:
            return self.rng.choice(limits)
        return value


# --- records ---------------------------------------------------------------------


_ARCHITECTURE = {
    **{"family": "llama", "normalization": "rms", "norm_epsilon": 1e-5},
    **{"activation": "silu", "positions": "rope", "longest": 8192, "rope_base": 1e4},
}


def record(draw: Draw, kind: type[schema.Record]) -> Tree:
    """A record, field by field; fields that draw None keep the schema's default."""
    ways = FIELDS[kind]
    is_flat = kind is schema.CostSettings  # the fields of all its groups
    assert ways.keys() == {*(schema.GROUP_OF if is_flat else kind.model_fields)}
    names = ways if is_flat else kind.model_fields
    tree = {name: ways[name](draw) for name in names}
    return {name: value for name, value in tree.items() if value is not None}


def _memory_gib(draw: Draw) -> float:
    share = draw.rng.choice([0.15, 0.3, 0.6, 1.0, 1.5, 3.0, 30.0])
    gib = round(draw.states_gib * share + draw.rng.choice([0.0, 0.1]), 4)
    return draw.limit(max(gib, 0.001), 1e-9, MOST_GIB)


def _counted(draw: Draw, low: int, high: int) -> list[int]:
    """A number for each layer: all alike, or not."""
    each = [draw.rng.choice([low, high]) for _ in range(draw.layers)]
    return draw.rng.choice([each, each[:1] * draw.layers])


def _parameters(draw: Draw) -> list[int] | None:
    zero = draw.limit(10_000_000, 0)
    return draw.maybe(None, _counted(draw, zero, 20_000_000))


def _few_parameters(draw: Draw) -> list[int] | None:
    return draw.maybe(None, None, None, _counted(draw, draw.limit(10**6, 0), 10**7))


def _of_layers(draw: Draw, rarity: int, make: Callable[[], Any]) -> list[Any] | None:
    """What repeats, or one for each layer; seldom anything."""
    if draw.rng.random() > draw.spice / rarity:
        return None
    return [make() for _ in range(draw.rng.randint(1, draw.layers))]


# Of a pair: its latency.
_REST: list[list[Any]] = [[], [0], [30.5], [4]]


def _links(draw: Draw) -> list[list[Any]]:
    names = [f"n{i}" for i in range(len(draw.counts))]
    pairs = [p for p in combinations(names, 2) if draw.rng.random() < draw.spice / 2]
    return [
        [*pair, draw.rng.choice([0.5, 5.0, 20.0]), *draw.rng.choice(_REST)]
        for pair in pairs[:20]
    ]


def _islands(draw: Draw) -> list[Tree] | None:
    """Nodes by name, or all by a pattern, on a link of their own."""
    names = [f"n{i}" for i in range(len(draw.counts))]
    if len(names) < 2:
        return None
    some = draw.rng.sample(names, draw.rng.randint(2, len(names)))
    rate = draw.rng.choice([5.0, "400Gb/s", "25GbE"])
    return [
        {"nodes": draw.rng.choice([some, ["n*"]]), "gbytes_per_s": rate}
        | draw.rng.choice([{}, {"latency_us": "2us"}])
    ]


def _profile(draw: Draw) -> list[Tree] | None:
    """Rows for each GPU type, degree and a power-of-two size; some may be missing."""
    if not draw.profiled:
        return None
    rng = draw.rng
    most = {
        gpu: max(
            n for n, other in zip(draw.counts, draw.gpus, strict=True) if other == gpu
        )
        for gpu in draw.gpus
    }
    weighed = draw.maybe("none", "layers", "parts")
    updated = rng.random() < draw.spice / 4
    missing = rng.choice([0.0, 0.0, 0.2])
    free = rng.choice([0.0, 0.0, 0.4, 1.0])  # layers that take no time
    wild = rng.random() < 0.3  # more samples need not take more time
    rows = []
    for gpu in sorted(most):
        base = [rng.randint(2, 3000) for _ in range(draw.layers)]
        base = [0 if rng.random() < free else us for us in base]
        for t in range(1, most[gpu] + 1):
            for b in rng.choice([(1,), (1, 2), (1, 2, 4), (2,), (1, 3)]):
                if rng.random() < missing:
                    continue
                each = 1 if wild else b**0.9 / t**0.8
                times = [int(us * each * rng.uniform(0.7, 1.1)) for us in base]
                rows.append(_row(draw, gpu, (t, b), times, weighed))
                if updated:
                    rows[-1]["update_us"] = [rng.randint(0, 500) for _ in times]
    # A profile without rows would be no profile.
    return rows or [_row(draw, draw.gpus[0], (1, 1), [5] * draw.layers, weighed)]


def _row(
    draw: Draw, gpu: str, key: tuple[int, int], times: list[int], weighed: str
) -> Tree:
    rng, (t, b) = draw.rng, key
    row: Tree = {"gpu": gpu, "tensor_parallel": t, "micro_batch": b}
    parts = [int(us * rng.choice([0, 0.6, 1])) for us in times]
    row["layer_us"] = times
    if rng.random() < 0.6:
        row["backward_us"] = parts
    if weighed != "none":
        share = int(draw.states_gib * 1024 / draw.layers) + 1
        row["layer_mib"] = [rng.randint(0, share) for _ in times]
        if weighed == "parts":
            row["activation_mib"] = [rng.randint(0, mib) for mib in row["layer_mib"]]
    return row


def _rules(draw: Draw) -> list[str]:
    return draw.maybe([], draw.rng.sample(RULES, draw.rng.randint(1, 3)))


def _stages(draw: Draw) -> list[int]:
    return draw.maybe([], draw.rng.sample(range(4), draw.rng.randint(1, 3)))


def _shares(draw: Draw) -> list[int]:
    """So many GPUs may divide the experts of the model, or sequences."""
    most = draw.experts if draw.weighed else 1
    return [e for e in range(2, most + 1) if draw.experts % e == 0]


def _experts(draw: Draw) -> int | None:
    """Calibrated times alone know GPUs that divide experts: most of those have some."""
    if draw.weighed:
        return draw.rng.choice([None, 2, 4, 6])
    return draw.maybe(None, 1, 4)


Way = Callable[[Draw], Any]

FIELDS: dict[type[schema.Record], dict[str, Way]] = {
    schema.GpuType: {
        "peak_tflops": lambda d: d.limit(
            d.rng.choice([20, 37.5, 100]), 1e-6, MOST_TFLOPS
        ),
        "memory_gib": _memory_gib,
        "efficiency": lambda d: d.maybe(None, 0.47, d.limit(0.9, 1e-9)),
        "usd_per_hour": lambda d: d.maybe(None, 0, 2.5),
        # Rare: most exact methods state nothing where the optimiser is timed.
        "memory_gbytes_per_s": lambda d: d.maybe(None, None, None, None, 900.0),
        "watts": lambda d: d.maybe(None, None, 350.0),
        "aliases": lambda d: d.maybe(None, ["also so"]),
        "host_gbytes_per_s": lambda d: d.rng.choice([12, 25.5]),
        # Where times are calibrated, `instance` draws them with the rate.
        **dict.fromkeys(("card", "generation", "peaks"), lambda d: None),
    },
    schema.Node: {
        "name": lambda d: f"n{d.node}",
        "gpu": lambda d: d.gpus[d.node],
        "count": lambda d: d.counts[d.node],
        "intra_gbytes_per_s": lambda d: (
            d.limit(50 if d.even else d.rng.choice([5, 50]), 1e-6, 1e9)
            if d.counts[d.node] > 1
            else d.maybe(None, 7)
        ),
        "intra_latency_us": lambda d: 0 if d.even else d.maybe(0, 5.5),
        "adapters": lambda d: d.maybe(None, None, 1, 2, 3),
        # Ample: brute force has no such limit (`test_memory_of_hosts` has tight ones).
        "host_gib": lambda d: 1e5 if d.node == 0 and d.layers % 2 else None,
        "gres": lambda d: d.maybe(None, "a100"),
        "product": lambda d: d.maybe(None, "NVIDIA-A100-SXM4-80GB"),
        "machine": lambda d: d.maybe(None, "box"),
    },
    schema.Inter: {
        "gbytes_per_s": lambda d: d.limit(d.rng.choice([0.5, 5, 50]), 1e-6, 1e9),
        "latency_us": lambda d: d.limit(d.maybe(0, 9.25), 1e9),
        "islands": lambda d: None if d.even else d.maybe(None, _islands(d)),
        "pairs": lambda d: [] if d.even else _links(d),
    },
    schema.ModelSpec: {
        "name": lambda d: "drawn",
        "layers": lambda d: d.layers,
        "hidden": lambda d: d.rng.choice([512, 1024]),
        "heads": lambda d: d.rng.choice([4, 8]),
        "vocabulary": lambda d: d.rng.choice([0, 2000, 20_000]),
        "parameters_per_layer": lambda d: d.maybe(None, 1, 15_000_000),
        "layer_parameters": _parameters,
        "active_layer_parameters": _few_parameters,
        "kv_heads": lambda d: d.maybe(None, 1, 2, 4),
        "head_dim": lambda d: d.maybe(None, 1, 100),
        "intermediate": lambda d: d.maybe(None, 1, 700),
        "gated": lambda d: d.maybe(False, True),
        "tied_embeddings": lambda d: d.maybe(False, True),
        "experts": _experts,
        "active_experts": lambda d: d.maybe(None, 1),
        "shared_experts": lambda d: d.maybe(0, 1),
        "expert_intermediate": lambda d: d.maybe(None, 300),
        "dense_layers": lambda d: d.maybe(0, d.rng.randint(0, d.layers)),
        "activation": lambda d: d.maybe("gelu", "relu", "silu"),
        "norm": lambda d: d.maybe("layer", "rms"),
        "dropout": lambda d: d.maybe(True, False),
        "layer_kinds": lambda d: _of_layers(d, 2, lambda: d.rng.choice(KINDS)),
        "window": lambda d: d.maybe(None, 40, 256, 300),
        "chunked": lambda d: d.maybe(False, True),
        "latent": lambda d: d.maybe(None, None, record(d, schema.LatentAttention)),
        "mamba": lambda d: d.maybe(None, record(d, schema.MambaMixer)),
        # As kinds ask.
        **dict.fromkeys(("mamba1", "linear", "convolution"), lambda d: None),
        "indexer": lambda d: d.maybe(None, None, record(d, schema.Indexer)),
        "value_dim": lambda d: d.maybe(None, None, 48),
        "gated_attention": lambda d: d.maybe(False, True),
        "kv_products": lambda d: d.maybe(2, 0, 1),
        "expert_hidden": lambda d: d.maybe(None, 128),
        "layer_shapes": lambda d: _of_layers(
            d, 3, lambda: record(d, schema.LayerShape)
        ),
        "layer_table": lambda d: d.maybe(0, 0, 50_000),
        "mtp_layers": lambda d: d.maybe(0, 0, min(1, d.layers - 1)),
        "qk_norm": lambda d: d.maybe(False, True),
        "post_norm": lambda d: d.maybe(False, True),
        "attention_bias": lambda d: d.maybe("none", "qkv", "all"),
        "vectors": lambda d: d.maybe(None, None, record(d, schema.Vectors)),
        "other_parameters": lambda d: d.maybe(0, 5000),
        "architecture": lambda d: d.maybe(None, None, _ARCHITECTURE),
    },
    schema.LatentAttention: {
        "query_rank": lambda d: d.rng.choice([0, 64]),
        "key_rank": lambda d: 32,
        "plain": lambda d: d.rng.choice([16, 64]),
        "rotary": lambda d: 16,
        "value_dim": lambda d: d.rng.choice([16, 64]),
    },
    schema.MambaMixer: {
        "heads": lambda d: d.rng.choice([8, 16]),
        "head_dim": lambda d: 64,
        "state": lambda d: d.rng.choice([16, 128]),
        "groups": lambda d: d.maybe(1, 2),
        "convolution": lambda d: d.maybe(4, 2),
    },
    schema.SelectiveMixer: {
        "width": lambda d: d.rng.choice([512, 1024]),
        "state": lambda d: 16,
        "rank": lambda d: d.rng.choice([16, 64]),
        "convolution": lambda d: d.maybe(4, 3),
    },
    schema.LinearAttention: {
        "key_heads": lambda d: 4,
        "value_heads": lambda d: d.rng.choice([4, 8]),
        "key_dim": lambda d: d.rng.choice([64, 96]),
        "value_dim": lambda d: d.rng.choice([64, 128]),
        "decay": lambda d: d.rng.choice(["fixed", "head", "channel"]),
        "rank": lambda d: d.rng.choice([0, 32]),
        "convolution": lambda d: d.rng.choice([0, 4]),
    },
    schema.ShortConvolution: {
        "width": lambda d: d.rng.choice([256, 512]),
        "convolution": lambda d: d.maybe(3, 4),
    },
    schema.Indexer: {
        "heads": lambda d: d.rng.choice([2, 8]),
        "head_dim": lambda d: 32,
        "chosen": lambda d: d.rng.choice([60, 256, 400]),
    },
    schema.LayerShape: {
        "heads": lambda d: d.maybe(None, 2, 8),
        "kv_heads": lambda d: d.maybe(None, 1, 2),
        "head_dim": lambda d: d.maybe(None, 40, 128),
        "kv_products": lambda d: d.maybe(None, 0, 1),
        "intermediate": lambda d: d.maybe(None, 300, 1500),
        "vectors": lambda d: d.maybe(None, None, record(d, schema.Vectors)),
    },
    schema.Vectors: {
        "attention": lambda d: d.maybe(None, 0, 900),
        "mamba": lambda d: d.maybe(None, 0, 700),
        "mamba1": lambda d: d.maybe(None, 0, 600),
        "linear": lambda d: d.maybe(None, 0, 500),
        "convolution": lambda d: d.maybe(None, 0, 400),
        "dense": lambda d: d.maybe(None, 0, 1100),
        "experts": lambda d: d.maybe(None, 3000),
        "expert": lambda d: d.maybe(0, 33),
    },
    schema.CostSettings: {
        "bytes_per_parameter": lambda d: d.maybe(None, 12, d.limit(18, 1, 4, 64)),
        "precision": lambda d: d.maybe(None, None, None, *schema.PRECISIONS),
        "zero": lambda d: d.maybe(0, 0, 1, 2, 3),
        "head": lambda d: d.maybe("include", "omit"),
        "fused_loss": lambda d: d.maybe(False, True),
        "logit_gradients": lambda d: d.maybe(False, True),
        "recompute": lambda d: d.maybe("full", "selective", "none"),
        "activations": lambda d: (
            "calibrated" if d.weighed else d.maybe("standard", "checkpoint")
        ),
        "in_flight": lambda d: d.maybe("1f1b", "gpipe", "one"),
        "sequence_parallel": lambda d: d.maybe(False, True),
        "flash": lambda d: d.maybe(False, True),
        "interleave": lambda d: d.maybe(1, 1, 1, 1, 2, 3),
        "layout": lambda d: None,  # kinds of trials whose methods carry it ask for it
        "hops": lambda d: d.maybe("sender", "sender", "sender", "both"),
        "pipeline": lambda d: d.maybe("critical", "lockstep"),
        "pipeline_factor": lambda d: d.limit(d.maybe(1, 1.8, 0.5), 1e-9, 1e9),
        "sync": lambda d: d.maybe("ring", "bottleneck"),
        "sync_overlap": lambda d: d.maybe("none", "backward"),
        "sync_factor": lambda d: d.limit(d.maybe(1, 0, 1.65), 0, 1e-9, 1e9),
        "tied_sync": lambda d: d.maybe(*[False] * 5, True),
        "iteration_overhead_us": lambda d: d.limit(d.maybe(0, 0, 17, 2500.5), 1e9),
        "hop_factor": lambda d: d.limit(d.maybe(1, 0, 0.4), 0, 1e-9, 1e9),
        "interleaved_hop_factor": lambda d: d.maybe(None, None, 0.3),
        "gathers": lambda d: d.maybe("iteration", "iteration", "micro_batch"),
        "context_parallel": lambda d: d.maybe(1, 1, 1, 2) if d.weighed else 1,
        "expert_parallel": lambda d: d.maybe(1, 1, *_shares(d)),
        "zero_groups": lambda d: d.maybe(1, 1, 1, 2, 3),
        "reserve_mib": lambda d: d.limit(d.maybe(0, 10, 150), 10**7),
        "lora": lambda d: (
            d.maybe(None, None, record(d, schema.Lora)) if d.shaped else None
        ),
        "optimiser": lambda d: d.maybe(
            "adamw", "adamw", "sgd", "adafactor", "muon", "adamw_8bit"
        ),
        "offload": lambda d: d.maybe(None, None, None, record(d, schema.Offload)),
        "layer_times": lambda d: (
            "profile" if d.profiled else "calibrated" if d.calibrated else "analytic"
        ),
        "profile": _profile,
        "calibration": lambda d: calibration(d.rng) if d.calibrated else None,
    },
    schema.Offload: {"memory_gbytes_per_s": lambda d: d.maybe(None, 3, 40.5)},
    schema.Lora: {
        "rank": lambda d: d.rng.choice([1, 8, 500]),
        "beside": lambda d: d.maybe("all", "attention"),
        "weight_bits": lambda d: d.maybe(None, 4, 8),
    },
    schema.Alternatives: {
        "recompute": _rules,
        "zero": _stages,
        "context_parallel": lambda d: d.some(1, 2) if d.weighed else [],
        "zero_groups": lambda d: d.some(1, 2, 3),
        "expert_parallel": lambda d: d.some(1, *_shares(d)) if d.weighed else [],
        "interleave": lambda d: d.some(1, 2, 3),
    },
    schema.Workload: {
        "sequence_length": lambda d: d.limit(d.rng.choice([256, 512]), 1),
        "global_batch": lambda d: d.batch,
        "micro_batch_sizes": lambda d: list(d.sizes),
        "iterations": lambda d: d.maybe(1, 1000),
        "costs": lambda d: record(d, schema.CostSettings),
        "alternatives": lambda d: (
            record(d, schema.Alternatives)
            if d.rng.random() < (1 if d.divides else d.spice / 3)
            else {}
        ),
        "runs_on": lambda d: d.maybe("any", "any", "architecture"),
        "restart_s": lambda d: None,  # these two are of offers
        "checkpoint_every_s": lambda d: None,
        "generation": lambda d: None,  # no training depends on it
    },
}


# --- instances -------------------------------------------------------------------


def instance(
    rng: Random,
    counts: tuple[int, ...],
    *,
    layers: int,
    batch: int,
    sizes: tuple[int, ...] = (1,),
    spice: float | None = None,
    even: bool | None = None,
    fixed: Tree | None = None,
    divides: bool = False,
) -> Tree:
    """A random instance on nodes of so many GPUs, as JSON.

    Where it `divides`, plans most likely choose how. `fixed` are settings of
    `workload.costs` that are not drawn; `profile: None` draws neither profile nor
    calibration, and no number at a limit.
    """
    free = "profile" not in (fixed or {})
    spice = rng.choice([0.05, 0.15, 0.3, 0.6, 0.9]) if spice is None else spice
    draw = Draw(rng, counts, layers, batch, sizes, spice)
    draw.extreme = rng.random() < 0.15 and free
    draw.profiled = rng.random() < 0.2 and free
    draw.divides = divides
    often = 0.6 if divides else 0.2
    draw.calibrated = not draw.profiled and rng.random() < often and free
    draw.weighed = draw.calibrated and rng.random() < (0.9 if divides else 0.6)
    draw.even = rng.random() < 0.4 if even is None else even
    types = ["A"] if draw.even and rng.random() < 0.6 else ["A", "B"]
    draw.gpus = [rng.choice(types) for _ in counts]
    model = _possible_model(draw, record(draw, schema.ModelSpec))
    spec = schema.ModelSpec.model_validate(model, strict=False)
    draw.shaped, draw.experts = schema.lora_fault(spec) is None, spec.experts or 1
    draw.states_gib = 16 * sum(spec.parameters) / 2**30
    nodes = []
    for number in range(len(counts)):
        draw.node = number
        nodes.append(record(draw, schema.Node))
    gpus = {}
    for gpu in sorted(set(draw.gpus)):
        gpus[gpu] = record(draw, schema.GpuType)
        if draw.calibrated:
            gpus[gpu] |= sheet(rng, gpus[gpu]["peak_tflops"])
    workload = record(draw, schema.Workload)
    workload["costs"] |= fixed or {}
    inter = record(draw, schema.Inter)
    return {
        "name": "drawn",
        "model": model,
        "workload": _mended(workload),
        "cluster": {"gpus": gpus, "nodes": nodes, "inter": inter},
    }


def divided(rng: Random, counts: tuple[int, ...]) -> Tree:
    """A random instance of few layers, of which plans may choose how it is divided."""
    return instance(
        *(rng, counts),
        layers=rng.choice([1, 2, 3, 5]),
        batch=rng.choice([4, 8, 12]),
        sizes=rng.choice([(1,), (1, 2), (1, 2, 4), (2,)]),
        divides=rng.random() < 0.3,
    )


def workload(rng: Random, *, layers: int, batch: int, sizes: tuple[int, ...]) -> Tree:
    """A random workload for a model of so many layers, without a profile."""
    draw = Draw(rng, (), layers, batch, sizes, rng.choice([0.05, 0.3, 0.9]))
    draw.extreme = rng.random() < 0.15
    return _mended(record(draw, schema.Workload))


def read(tree: Tree) -> Instance:
    """The instance of a drawn tree; an error here is one of the drawing."""
    return Instance.model_validate(tree, strict=False)


def leave_choices_out(tree: Tree) -> None:
    """Change an instance so that plans have nothing to choose."""
    workload = tree["workload"]
    workload["alternatives"] = {}
    _share_states(workload)


def _possible_model(draw: Draw, model: Tree) -> Tree:
    if "layer_parameters" in model:
        model.pop("parameters_per_layer", None)
    if model.get("experts"):
        model.setdefault("active_experts", draw.rng.randint(1, model["experts"]))
    else:
        model.pop("active_experts", None)
    kinds = "+".join(model.get("layer_kinds", ()))
    if kinds:
        model.pop("dense_layers", None)
        if "experts" in kinds:
            model |= {"experts": 4, "active_experts": 2}
        if "window" in kinds:
            model.setdefault("window", 100)
        for part in {*kinds.split("+")} & {*MIXERS}:
            model.setdefault(part, record(draw, MIXERS[part]))
    for shape in model.get("layer_shapes", ()):
        if "latent" in model:
            for field in ("heads", "kv_heads", "head_dim", "kv_products"):
                shape.pop(field, None)
        elif shape.get("heads", 8) % shape.get("kv_heads", model.get("kv_heads", 1)):
            shape["kv_heads"] = 1
        if "heads" in shape and model.get("kv_heads", 0) == 4:
            shape["kv_heads"] = 2
    return model


def _mended(workload: Tree) -> Tree:
    """The workload without what the schema, or its target, refuses together."""
    costs, other = workload["costs"], workload["alternatives"]
    if costs["interleave"] > 1 or costs.get("precision") == "bf16":
        workload["runs_on"] = "any"
    if {costs["zero"], *other.get("zero", ())} & {2, 3}:
        workload["runs_on"] = "any"
    if costs["layer_times"] == "analytic" or not costs.get("profile"):
        costs.pop("profile", None)
        told = costs.get("calibration") is not None
        costs["layer_times"] = "calibrated" if told else "analytic"
    if costs.get("precision"):
        costs.pop("bytes_per_parameter", None)
    else:
        costs.pop("optimiser", None)
    if any({"update_us", "layer_mib"} & {*row} for row in costs.get("profile") or ()):
        costs.pop("offload", None)
    if workload["sequence_length"] % 4:
        costs["context_parallel"] = 1
        other.pop("context_parallel", None)
    if costs["fused_loss"]:
        costs["logit_gradients"] = False
    if max(costs["interleave"], *other.get("interleave", ()), 1) > 1:
        costs["pipeline"] = "critical"
        if costs["in_flight"] == "gpipe":
            costs["in_flight"] = "1f1b"
    if costs.get("profile") or costs["activations"] == "checkpoint":
        other.pop("recompute", None)
    if any("layer_mib" in row for row in costs.get("profile", ())):
        costs["zero"] = 0
        other.pop("zero", None)
    _share_states(workload)
    return workload


def _share_states(workload: Tree) -> None:
    """Leave groups out that divide nothing, or beside which more is divided.

    The least number of groups is that of the costs.
    """
    costs, other = workload["costs"], workload["alternatives"]
    asked = {costs["zero_groups"], *other.get("zero_groups", ())}
    beside = {
        degree
        for field in ("context_parallel", "expert_parallel")
        for degree in (costs[field], *other.get(field, ()))
    }
    if max(beside) > 1 or not max({costs["zero"], *other.get("zero", ())}):
        asked = {1}
    least, *others = sorted(asked)
    costs["zero_groups"] = least
    if "zero_groups" in other:
        other["zero_groups"] = others
