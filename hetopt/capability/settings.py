"""Settings that not every method carries, and how an instance asks for each.

A setting is seen on the instance alone. What is not in `SETTINGS` is in the tables of
costs that all methods read (`READ_BY_ALL`): every method carries it.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..schema import Instance, Node

#: Layers whose runs tables of stages can list; of more layers there are too many.
MOST_TABLED = 512

_COSTS = "workload.costs"


class Setting(NamedTuple):
    """A setting: what users call it, the field that says it, and what is found there.

    `found` returns the value that asks for it, None where the instance does not.
    """

    words: str
    field: str
    found: Callable[[Instance], object]


def _of_costs(
    words: str, field: str, found: Callable[[Any, Any], object], place: str = _COSTS
) -> Setting:
    """Return what is `found` of a field of costs: its value, and its alternatives."""

    def of(instance: Instance) -> object:
        others = getattr(instance.workload.alternatives, field, ())
        return found(instance.workload.costs.value(field), others)

    return Setting(words, f"{place}.{field}", of)


def _cost(words: str, field: str, usual: object) -> Setting:
    """Return the setting that a field of costs is when it has no usual value."""
    return _of_costs(words, field, lambda own, _: None if own == usual else own)


def _every(words: str, field: str, usual: int) -> Setting:
    """Return the setting that no plan may do with the usual value of a field."""
    return _of_costs(
        words, field, lambda own, more: None if usual in (own, *more) else own
    )


def _choice(words: str, field: str) -> Setting:
    """Return the setting that plans choose a field of costs among several values."""

    def found(own: object, others: tuple[object, ...]) -> object:
        return list(others) if {*others} - {own} else None

    return _of_costs(words, field, found, "workload.alternatives")


def _value(words: str, field: str, value: str) -> Setting:
    """Return the setting that a field of costs has such a value."""
    return _of_costs(words, field, lambda own, _: own if own == value else None)


def _first(values: Iterable[object]) -> object:
    return next((value for value in values if value is not None), None)


def _sizes(instance: Instance) -> object:
    sizes = list(instance.workload.micro_batch_sizes)
    return sizes if max(sizes) > 1 else None


def _offload(instance: Instance) -> object:
    return "optimiser" if instance.workload.costs.memory.hosts_update else None


def _profiled(words: str, field: str) -> Setting:
    """Return the setting that some row of a profile has a field."""

    def found(instance: Instance) -> object:
        rows = instance.workload.costs.compute.profile
        return "measured" if any(getattr(row, field) for row in rows) else None

    return Setting(words, f"{_COSTS}.profile.{field}", found)


def _calibrated_update(instance: Instance) -> object:
    calibration = instance.workload.costs.compute.calibration
    return None if calibration is None else calibration.constants.get("update")


def _timed_update(instance: Instance) -> object:
    calibrated = instance.workload.costs.compute.calibration is not None
    if calibrated or instance.cluster is None:
        return None
    return _first(gpu.memory_gbytes_per_s for gpu in instance.cluster.gpus.values())


def _nodes(instance: Instance) -> Iterable[Node]:
    return instance.cluster.nodes if instance.cluster else ()


def _pairs(instance: Instance) -> object:
    pairs = instance.cluster.inter.pairs if instance.cluster else ()
    return f"{len(pairs)} pairs" if pairs else None


def _unequal_layers(instance: Instance) -> object:
    model = instance.model
    for field in ("parameters", "active_parameters", "kinds"):
        if len({*getattr(model, field)}) > 1:
            return f"{field} differ"
    for row in instance.workload.costs.compute.profile:
        for field in ("layer_us", "backward_us", "layer_mib", "activation_mib"):
            if len({*(getattr(row, field) or ())}) > 1:
                return f"the profile's {field} differ"
    return None


#: By name, in the order of the page: plans, states, passes, links, times, and the rest.
SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "runs_on": Setting(
            "rules of a program",
            "workload.runs_on",
            lambda x: None if x.workload.runs_on == "any" else x.workload.runs_on,
        ),
        "micro_batch_sizes": Setting(
            "micro-batches of several sequences", "workload.micro_batch_sizes", _sizes
        ),
        "context_parallel": _every("context parallelism", "context_parallel", 1),
        "expert_parallel": _every("expert parallelism", "expert_parallel", 1),
        "choice_of_recompute": _choice("a choice of recomputation", "recompute"),
        "choice_of_zero": _choice("a choice of ZeRO", "zero"),
        "choice_of_context": _choice(
            "a choice of context parallelism", "context_parallel"
        ),
        "choice_of_experts": _choice(
            "a choice of expert parallelism", "expert_parallel"
        ),
        "choice_of_interleave": _choice("a choice of interleaving", "interleave"),
        "choice_of_groups": _choice("a choice of groups of ZeRO", "zero_groups"),
        "zero": _every("ZeRO", "zero", 0),
        "zero_and_samples": Setting(
            "ZeRO with micro-batches of several sequences",
            "workload.micro_batch_sizes",
            lambda x: _sizes(x) if max(x.workload.zeros) else None,
        ),
        "zero_groups": _every("groups of ZeRO (HSDP)", "zero_groups", 1),
        "gathers": Setting(
            "weights gathered for every micro-batch (FSDP)",
            f"{_COSTS}.gathers",
            lambda x: (
                "micro_batch"
                if x.workload.costs.updates.gathers == "micro_batch"
                and 3 in x.workload.zeros
                else None
            ),
        ),
        "lora": Setting(
            "adapters (LoRA)",
            f"{_COSTS}.lora",
            lambda x: (lora := x.workload.costs.updates.lora) and f"rank {lora.rank}",
        ),
        "offload": Setting("offloading", f"{_COSTS}.offload", _offload),
        "host_memory": Setting(
            "host memory for offloading",
            "cluster.nodes.host_gib",
            lambda x: (
                x.workload.costs.memory.offload
                and _first(node.host_gib for node in _nodes(x))
            ),
        ),
        "recompute": _cost("recomputation other than full", "recompute", "full"),
        "activations": _cost(
            "activations besides checkpoints", "activations", "checkpoint"
        ),
        "in_flight": _cost("memory of micro-batches in flight", "in_flight", "one"),
        "interleave": _every("interleaved pipelines", "interleave", 1),
        "layout": _cost("told virtual stages, ends without layers", "layout", "equal"),
        "lockstep": _cost("pipelines in lockstep", "pipeline", "critical"),
        "pipeline_factor": _cost("a factor of pipelines", "pipeline_factor", 1),
        "sync": _cost("synchronisation by the slowest link", "sync", "ring"),
        "sync_factor": _cost("a factor of synchronisation", "sync_factor", 1),
        "sync_overlap": _cost(
            "synchronisation hidden by backward passes", "sync_overlap", "none"
        ),
        "tied_sync": _cost("timed all-reduce of tied embeddings", "tied_sync", False),
        "hops": _cost("transfers that occupy the receiver, too", "hops", "sender"),
        "adapters": Setting(
            "network ports of nodes",
            "cluster.nodes.adapters",
            lambda x: _first(node.adapters for node in _nodes(x)),
        ),
        "pairs": Setting(
            "links of their own between nodes", "cluster.inter.pairs", _pairs
        ),
        "profile": _value("a measured profile", "layer_times", "profile"),
        "calibrated": _value("calibrated times", "layer_times", "calibrated"),
        "weighed": _profiled("measured memory of layers", "layer_mib"),
        "calibrated_memory": _value(
            "calibrated activations", "activations", "calibrated"
        ),
        "timed_update": Setting(
            "an optimiser timed by the rate of memory",
            "cluster.gpus.memory_gbytes_per_s",
            _timed_update,
        ),
        "calibrated_update": Setting(
            "an optimiser timed by a constant",
            f"{_COSTS}.calibration.constants.update",
            _calibrated_update,
        ),
        "profiled_update": _profiled("measured updates", "update_us"),
        "iteration_overhead": _cost(
            "overhead of an iteration", "iteration_overhead_us", 0
        ),
        "head": _cost("embedding and head", "head", "omit"),
        "unequal_layers": Setting("unequal layers", "model.layers", _unequal_layers),
        "many_layers": Setting(
            f"more than {MOST_TABLED} layers",
            "model.layers",
            lambda x: x.model.layers if x.model.layers > MOST_TABLED else None,
        ),
    }
)

#: Fields of costs that are in the tables which all methods read.
READ_BY_ALL = frozenset(
    {
        *("bytes_per_parameter", "precision", "fused_loss", "logit_gradients"),
        *("sequence_parallel", "flash", "reserve_mib", "optimiser"),
        *("hop_factor", "interleaved_hop_factor", "layer_times"),
    }
)
