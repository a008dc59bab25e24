"""The matrix says which method carries which setting, a row a method.

A method carries every setting that its row does not name. One that it carries *in part*
it takes, and what it says holds: a bound is weaker, a planner looks at fewer plans, a
schedule leaves something out. One that it does *not* carry it refuses by this row.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class Carried(StrEnum):
    """A method carries a setting in one of these ways."""

    EXACTLY = "exactly"
    IN_PART = "in part"
    NOT = "not"


class Cell(NamedTuple):
    """A cell says how a method carries a setting, and why not exactly."""

    carried: Carried
    reason: str


class Method(NamedTuple):
    """A method: what it does, what it carries in part or not, and who carries more."""

    does: str
    cells: Mapping[str, Cell]
    instead: str


Reasons = Mapping[str, str]
_NONE: Reasons = MappingProxyType({})


def _method(
    does: str, *, in_part: Reasons = _NONE, refused: Reasons = _NONE, instead: str = ""
) -> Method:
    """Return a row; what is refused counts where both name a setting."""
    some = {name: Cell(Carried.IN_PART, why) for name, why in in_part.items()}
    none = {name: Cell(Carried.NOT, why) for name, why in refused.items()}
    return Method(does, MappingProxyType(some | none), instead)


def _only(reasons: Reasons, *names: str) -> Reasons:
    return {name: reasons[name] for name in names}


def _without(reasons: Reasons, names: Iterable[str]) -> Reasons:
    return {name: why for name, why in reasons.items() if name not in {*names}}


_SPLITS = (
    *("choice_of_context", "choice_of_experts"),
    *("choice_of_interleave", "choice_of_groups"),
)
_BY_COSTS = "it plans only with the setting of workload.costs"

#: Of methods that take a plan apart: a stage is timed by its own layers and transfer,
#: and weighed by its position, whatever else the plan has.
_APART: Reasons = MappingProxyType(
    {
        **dict.fromkeys(("choice_of_recompute", "choice_of_zero", *_SPLITS), _BY_COSTS),
        "context_parallel": "its groups of GPUs are only tensor-parallel",
        "expert_parallel": "GPUs that share experts belong to several pipelines",
        "zero": "a replica's share of the states depends on other pipelines",
        "zero_groups": "groups of replicas span pipelines",
        "gathers": "how often weights are gathered depends on the whole plan",
        "interleave": "it plans one virtual stage per GPU",
        "hops": "it charges a transfer to the stage that sends",
        "layout": "its stages have neighbouring layers, one at the least",
        "adapters": "stages share the ports of a node, and it times them one by one",
        "tied_sync": "it leaves out traffic between the first and the last stage",
        "profiled_update": "it does not read measured updates",
    }
)
_NO_HOST = "plans too large for a host are dropped without a search for others"
_HELD = "host memory is left out"
_NO_UPDATE = "it times passes and synchronisation, not the optimiser"

#: Besides, of those that know passes and synchronisation alone.
_PASSES: Reasons = MappingProxyType(
    {
        "timed_update": _NO_UPDATE,
        "calibrated_update": _NO_UPDATE,
        "lora": "it assumes that all weights are trained",
        "offload": "it does not time links to hosts",
        "lockstep": "it times pipelines by their critical path",
        "sync_overlap": "it adds all of the synchronisation to the pipelines",
    }
)
#: What is not listed where all plans of a small cluster are, and left to prices.
_NOT_LISTED: Reasons = MappingProxyType(
    {
        **_only(_APART, *_SPLITS, "context_parallel", "expert_parallel", "zero_groups"),
        **_only(_APART, "gathers", "interleave", "hops", "layout"),
        **_only(_APART, "tied_sync", "profiled_update"),
        "zero_and_samples": "the states that replicas of a stage share depend "
        "on all of these replicas",
    }
)
_LEAST_STATES = "states are as small as the most replicas could make them"
_LEAST_UPDATE = "it counts the least optimiser time of any plan"
_FREE_GROUPS = "synchronisation between groups is free"
_FREE_EXPERTS = "the traffic of experts is left out"
_LEAST_FLIGHT = "micro-batches in flight take the least memory that they can"

#: Of lower bounds that count stages: what they do not count, or not in full.
_NOT_COUNTED: Reasons = MappingProxyType(
    {
        "runs_on": "the bound is for plans of all shapes, including those that the "
        "program cannot run",
        "micro_batch_sizes": "replicas of a stage in several nodes are priced one by "
        "one, as if any mix were possible",
        "expert_parallel": _FREE_EXPERTS,
        "choice_of_experts": _FREE_EXPERTS,
        "choice_of_zero": _LEAST_STATES,
        "choice_of_interleave": _LEAST_FLIGHT,
        "choice_of_groups": _FREE_GROUPS,
        "zero": _LEAST_STATES,
        "zero_and_samples": _LEAST_STATES,
        "zero_groups": _FREE_GROUPS,
        "gathers": "weights are gathered once per iteration",
        "interleave": _LEAST_FLIGHT,
        "lockstep": "the critical path is counted, which is at most as long",
        "tied_sync": "traffic between the first and the last stage is left out",
        "hops": "a transfer is charged to the stage that sends",
        "adapters": "every transfer and every ring has the whole link",
        "pairs": "it uses the fastest link of a node",
        "offload": _LEAST_UPDATE,
        "host_memory": _HELD,
        "timed_update": _LEAST_UPDATE,
        "calibrated_update": _LEAST_UPDATE,
        "profiled_update": _LEAST_UPDATE,
    }
)
_BOUNDED = "plans are found and bounded, but not all listed on small clusters"
_LAYOUT = _only(_APART, "layout")
_TABLES: Reasons = {**_LAYOUT, "many_layers": "tables of so many runs are too large"}
_ONE_RUN = _APART["interleave"]
_STATEMENT: Reasons = MappingProxyType(
    {
        **_APART,
        **_PASSES,
        "micro_batch_sizes": "its stages have one replica",
        "sync": "it sums a ring over all replicas of a layer",
        "calibrated": "it gives plans on one GPU the times of plans on several",
        "iteration_overhead": "its objective has only pipelines and synchronisation",
        "unequal_layers": "it counts layers, whatever their kind",
    }
)
_APPENDIX = "the appendix of the paper has no such term"
_EXACT = "use the exact method training_plan (`hetopt plan`)"
_PAPERS: Reasons = MappingProxyType(
    {
        "runs_on": "it ignores programs, so a program may be unable to run its plan",
        "choice_of_recompute": _BY_COSTS,
        "choice_of_zero": _BY_COSTS,
        "host_memory": _NO_HOST,
        **_LAYOUT,
    }
)
_ALIKE = "its pipelines may differ, but must be equal here"
_UNEQUAL: Reasons = {"expert_parallel": _ALIKE, "zero_groups": _ALIKE}
_WITHOUT: Reasons = {
    "choice_of_experts": "it divides no experts",
    "choice_of_groups": "it makes no groups",
}
_GRIDS = "use the planner megatron or grid, or `hetopt plan`"
_BY_FORMULA = "layers are weighed one by one, by formula"
_OFFERED = "offers are timed by formula"
_LEFT_OUT = "prices of offers leave it out"
_SCHEDULE: Reasons = MappingProxyType(
    {
        "interleave": _ONE_RUN,
        "choice_of_interleave": _ONE_RUN,
        "lockstep": "stages do not wait for each other's slots",
    }
)

#: By kind and name, in the order of the page.
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "exact method training_plan": _method(
            "a plan and a bound, by all proofs below",
            in_part={
                **dict.fromkeys(_NOT_LISTED, _BOUNDED),
                **_only(_NOT_COUNTED, "runs_on", "adapters"),
                "host_memory": _NO_HOST,
                **dict.fromkeys(("many_layers", "layout"), "only total work bounds it"),
            },
        ),
        "exact method one_pipeline": _method(
            "the best plan of one pipeline, with its proof",
            refused={**_APART, **_PASSES},
            instead=_EXACT,
        ),
        "proof enumeration": _method(
            "of training_plan: all plans of a small cluster",
            in_part=_only(_NOT_COUNTED, "adapters", "host_memory"),
            refused=_NOT_LISTED,
        ),
        "proof pipelines": _method(
            "of training_plan: prices of pipelines",
            in_part={**_NOT_COUNTED, "in_flight": _LEAST_FLIGHT},
            refused=_TABLES,
            instead="proofs leave it out",
        ),
        "proof work": _method(
            "of training_plan: the work of all GPUs, and the shortest pipeline",
            in_part=_without(_NOT_COUNTED, ("micro_batch_sizes", "interleave")),
        ),
        "proof crossing": _method(
            "of training_plan: what must cross links between nodes",
            in_part=_without(_NOT_COUNTED, ("micro_batch_sizes",)),
            refused={
                "micro_batch_sizes": _STATEMENT["micro_batch_sizes"],
                **_LAYOUT,
                "sync_overlap": _PASSES["sync_overlap"],
                "lora": _PASSES["lora"],
                "profile": "it weighs layers by their parameters and FLOPs",
                "calibrated": "it weighs layers by their parameters and FLOPs",
            },
        ),
        "statement hexiscale_milp": _method(
            "HexiScale's appendix, made linear", refused=_STATEMENT, instead=_EXACT
        ),
        "statement hexiscale_literal": _method(
            "HexiScale's appendix, as it is printed",
            refused={
                **_STATEMENT,
                "head": _APPENDIX,
                "recompute": _APPENDIX,
                "activations": _APPENDIX,
                "in_flight": _APPENDIX,
                "pipeline_factor": _APPENDIX,
                "sync_factor": _APPENDIX,
            },
            instead=_EXACT,
        ),
        "problem layer_partition": _method(
            "a pipeline of an instance, whose layers are to be divided",
            refused={
                **_only(_APART, "interleave", "layout", "hops", "context_parallel"),
                "expert_parallel": _APART["expert_parallel"],
                "lockstep": _PASSES["lockstep"],
                "offload": "it leaves out transfers to hosts",
                "weighed": _BY_FORMULA,
                "calibrated_memory": _BY_FORMULA,
            },
            instead="plan the whole instance (`hetopt plan`)",
        ),
        "problem provisioning": _method(
            "offers to rent, timed and weighed for its methods",
            refused={
                **dict.fromkeys(_SPLITS, _BY_COSTS),
                **_only(_APART, "context_parallel", "expert_parallel"),
                "unequal_layers": "stages are numbers of layers, whatever their kind",
                "calibrated": _OFFERED,
                "calibrated_memory": _BY_FORMULA,
                **dict.fromkeys(
                    (
                        *("iteration_overhead", "tied_sync"),
                        *("gathers", "interleave", "lockstep", "zero_groups"),
                        "layout",
                        *("pipeline_factor", "sync_factor", "offload"),
                    ),
                    _LEFT_OUT,
                ),
            },
            instead="leave it out, or plan on a cluster (`hetopt plan`)",
        ),
        "planner megatron": _method(
            "equal pipelines on the whole cluster",
            in_part=_without(_PAPERS, ("runs_on",)),
        ),
        "planner grid": _method(
            "pipelines cut alike, of every shape",
            in_part={
                "choice_of_recompute": "all stages recompute by one rule",
                "host_memory": _NO_HOST,
                **_LAYOUT,
            },
        ),
        "planner islands": _method(
            "sets of nodes, each with equal pipelines",
            in_part={**_PAPERS, **_WITHOUT},
            refused=_UNEQUAL,
            instead=_GRIDS,
        ),
        "planner": _method(
            "every other planner of training plans",
            in_part={**_PAPERS, **_WITHOUT},
            refused=_UNEQUAL,
            instead=_GRIDS,
        ),
        "schedule 1f1b": _method(
            "simulated passes: 1F1B, interleaved or not",
            in_part=_only(_SCHEDULE, "lockstep"),
        ),
        "schedule gpipe": _method("simulated passes: GPipe", in_part=_SCHEDULE),
    }
)


def row(method: str) -> Method:
    """Return the row of a method; planners without one of their own share one."""
    if method in METHODS:
        return METHODS[method]
    return METHODS[method.partition(" ")[0]]
