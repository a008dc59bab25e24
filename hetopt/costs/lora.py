"""LoRA: all weights are frozen; adapters beside the matrices of the layers are trained.

A matrix of m x n gets r (m + n) parameters at rank r: queries, keys, values, output
and the MLP's matrices, those of every expert; none beside embedding, head and router.

    memory     frozen weights have neither gradients nor optimiser states
    time       no gradients of frozen weights: a pass less over them, and over the head
    gradients  the adapters' alone travel

Approximated, each upwards: adapters lie whole on every GPU of a tensor-parallel group;
activations are those of full training, and the passes reach down to the first layer.

Source: LoRA (arXiv 2106.09685), sections 4.1 and 4.2.
"""

from fractions import Fraction

from ..schema import CostSettings, GpuType, ModelSpec, Workload
from .compute import flops_per_s, passes


def fault(model: ModelSpec) -> str | None:
    """Why adapters of a model cannot be counted, with the remedy; None if they can."""
    parts = {part for kind in model.kinds for part in kind}
    if model.latent or parts & {"mamba", "further"} or min(map(len, model.kinds)) < 2:
        return (
            f"found layers of model {model.name!r} that are not attention and an MLP "
            "(latent, mamba, mtp_layers, layer_kinds), whose adapters are not "
            "modelled; train all weights"
        )
    for field in ("layer_parameters", "parameters_per_layer"):
        if getattr(model, field) is not None:
            return (
                f"found {field} of model {model.name!r}, expected the shapes of its "
                "matrices (intermediate, kv_heads, gated, ...), beside which LoRA puts "
                "its adapters; give these, or train all weights"
            )
    return None


def adapters(model: ModelSpec, rank: int) -> int:
    """Parameters of all adapters."""
    return _adapters(model, rank, model.experts)


def active_adapters(model: ModelSpec, rank: int) -> int:
    """Parameters of the adapters that one token uses."""
    return _adapters(model, rank, model.active_experts)


def _adapters(model: ModelSpec, rank: int, experts: int | None) -> int:
    h, matrices = model.hidden, 3 if model.gated else 2
    attention = 4 * h + 2 * model.attention_width + 2 * model.kv_width
    dense = sparse = matrices * (h + model.mlp_width)
    if experts:
        width = model.expert_intermediate or model.mlp_width
        sparse = matrices * (h + width) * (experts + model.shared_experts)
    with_experts = sum("experts" in kind for kind in model.kinds)
    ends = attention * model.layers + sparse * with_experts
    return rank * (ends + dense * (model.layers - with_experts))


def layers_change_s(
    model: ModelSpec, workload: Workload, rank: int, gpu: GpuType, t: int, b: int
) -> Fraction:
    """Seconds that all layers take more than in full training; below 0 if less."""
    tokens = b * workload.sequence_length
    saved = Fraction(2 * sum(model.active_parameters) * tokens, t)
    each = 2 * passes(workload.costs)
    added = each * active_adapters(model, rank) * tokens
    return (added - saved) / flops_per_s(gpu)


HEAD = Fraction(2, 3)  # of the head's time: forward, gradients of its inputs


def backward_share(costs: CostSettings) -> Fraction:
    """Share of a layer's time that is its backward pass, at least."""
    return Fraction(2, 3) if costs.recompute == "full" else Fraction(1, 2)
