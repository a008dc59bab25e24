"""Layers take time by kind; where calibrated, the time of one has parts."""

from dataclasses import dataclass

from ..costs import CostTable, memory
from ..plans import TrainingPlan

#: Terms in the order in which they are shown, and what they are.
TERMS = {
    "products": "matrix products, both passes",
    "attention": "attention scores and weighted values, both passes",
    "traffic": "norms, sums and activations through memory",
    "tensor_parallel": "all-reduces that nothing hides",
    "exchange": "tokens sent to experts and back",
    "weights": "casting weights, summing gradients",
    "launches": "kernel launches by the host",
    "recomputation": "recomputed parts of the forward pass",
    "host": "waiting for transfers to host memory",
}


@dataclass(frozen=True)
class LayerTime:
    """One layer, micro-batch and group of GPUs; `terms_us` add up to its time."""

    layer: int
    gpu: str
    tensor_parallel: int
    samples: int
    recompute: str
    terms_us: dict[str, float]

    @property
    def whole_us(self) -> float:
        """Both passes."""
        return sum(self.terms_us.values())


@dataclass(frozen=True)
class LayersOfKind:
    """A row gives the cost of one layer of a kind on the group that holds the first."""

    kind: str
    layers: int
    parameters: int
    active_parameters: int
    gpu: str
    tensor_parallel: int
    samples: int
    us: int  # both passes of a micro-batch
    kept_mib: int  # of each micro-batch in flight, on each GPU


def layers_by_kind(table: CostTable, plan: TrainingPlan) -> list[LayersOfKind]:
    """A row a kind, in the order of their first layers; empty where there is one."""
    model = table.model
    kinds = list(dict.fromkeys(zip(model.kinds, model.parameters, strict=True)))
    if len(kinds) < 2:
        return []
    rows, runs_of = [], table.split.interleave
    for kind, parameters in kinds:
        many = [
            x
            for x in range(model.layers)
            if (model.kinds[x], model.parameters[x]) == (kind, parameters)
        ]
        first = plan.pipelines[0]
        stage = next(
            stage
            for stage, runs in zip(first.stages, first.held(runs_of), strict=True)
            if any(many[0] in run for run in runs)
        )
        replica, mine = stage.replicas[0], table.under(stage.recompute)
        at = (replica.degree, replica.samples)
        one = range(many[0], many[0] + 1)
        held, _ = mine.activations(*at).bytes(one, 1)
        row = LayersOfKind(
            kind="+".join(kind),
            layers=len(many),
            parameters=parameters,
            active_parameters=model.active_parameters[many[0]],
            gpu=table.cluster.node[replica.node].gpu,
            tensor_parallel=replica.degree,
            samples=replica.samples,
            us=mine.layer_us(replica.node, *at)[many[0]],
            kept_mib=memory.mib(held),
        )
        rows.append(row)
    return rows


def layer_times(table: CostTable, plan: TrainingPlan) -> list[LayerTime]:
    """Each layer that differs from those before it, or lies elsewhere.

    Empty where times are not calibrated.
    """
    if table.calibrated is None:
        return []
    found: dict[object, LayerTime] = {}
    held = (
        (stage, layer)
        for pipeline in plan.pipelines
        for stage, runs in zip(
            pipeline.stages, pipeline.held(table.split.interleave), strict=True
        )
        for run in runs
        for layer in run
    )
    for stage, layer in held:
        mine = table.under(stage.recompute)
        assert mine.calibrated is not None
        for replica in stage.replicas:
            place = mine.node_class[replica.node]
            at = (place, replica.degree, replica.samples)
            rule = mine.workload.costs.compute.recompute
            key = (*at, rule, mine.calibrated.sorts[layer])
            if key not in found:
                terms = mine.calibrated.terms_us(*at, layer)
                if mine.workload.costs.memory.offload is not None:
                    waits = mine.waits_us(replica.node, *at[1:])
                    terms |= {"host": sum(each[layer] for each in waits)}
                found[key] = LayerTime(layer, place.gpu, *at[1:], rule, terms)
    return list(found.values())
