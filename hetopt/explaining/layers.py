"""What the time of one layer is made of, where times are calibrated."""

from dataclasses import dataclass

from ..costs import CostTable
from ..plans import TrainingPlan

#: Terms in the order in which they are shown, and what they are.
TERMS = {
    "products": "products of matrices, both passes",
    "attention": "scores and what they weigh, both passes",
    "traffic": "norms, sums and activations through memory",
    "tensor_parallel": "all-reduces, as far as nothing hides them",
    "launches": "what the host takes to launch kernels",
    "recomputation": "what of the forward pass is computed again",
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


def layer_times(table: CostTable, plan: TrainingPlan) -> list[LayerTime]:
    """The first layer of each stage that differs from those before it.

    Empty where times are not calibrated.
    """
    if table.calibrated is None:
        return []
    found: dict[object, LayerTime] = {}
    for stage in (stage for pipeline in plan.pipelines for stage in pipeline.stages):
        mine = table.under(stage.recompute)
        assert mine.calibrated is not None
        layer = stage.span[0]
        for replica in stage.replicas:
            place = mine.node_class[replica.node]
            at = (place, replica.degree, replica.samples)
            rule = mine.workload.costs.recompute
            key = (*at, rule, mine.calibrated.sorts[layer])
            if key not in found:
                terms = mine.calibrated.terms_us(*at, layer)
                found[key] = LayerTime(layer, place.gpu, *at[1:], rule, terms)
    return list(found.values())
