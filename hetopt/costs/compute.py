"""Times of layers and of the head, for one micro-batch on one tensor-parallel group.

    flops_l = c (2 p_l b S + 4 b N_l W)      c = 3, or 4 with full recomputation
              (selective: 3 and 4 for the two terms, the scores are computed again;
              modules by name: 2 p b S more of the p that are multiplied again)
    compute = flops_l / (t F_g)
    tp      = A (t - 1) (alpha + e b S H / (t beta))      A = 12 recomputed, else 8;
                                                    2 more of `mlp` or `moe` alone

N_l = S^2 scores of a head. With flash attention a layer whose attention sees a window
of w tokens has the S^2 - (S - w)^2 that twice the causal half of it has, one whose
attention sees chunks the squares of those, one whose attention sees k chosen tokens
those of a window of k, and the 2 b S^2 times heads x head_dim of the indexer that
chooses; without it windows and choices are masks and save nothing. A mixer without
scores has the FLOPs of its scan (`hetopt.schema.layers`), for Mamba-2 7 b S inner state
as Megatron-LM counts them. A layer of one part has half of A, of three parts three
halves. A layer that predicts further tokens has a pass through the head besides,
2 V H b S.

W = heads x head_dim (H in the papers), e = 2 bytes, 4 in single precision. The head,
V H parameters without attention, is not recomputed: c = 3, and it needs no all-reduce
of its own. What is computed again selectively, a few per cent of a layer, is timed
with the forward pass.
"""

from fractions import Fraction
from typing import NamedTuple

from ..schema import CostSettings, GpuType, ModelSpec, Workload, exact
from ..schema.groups import modules_of
from ..schema.layers import ATTENDING, FURTHER, MODULE_OF, WINDOW
from .formulas.shared import ring_s
from .formulas.shared import scores as scores_within

LinkRate = tuple[Fraction, Fraction]  # latency in s, bandwidth in bytes/s
Share = tuple[Fraction, int]  # parameters on a GPU, replicas that hold them


class NodeClass(NamedTuple):
    """Facts that a group's speed depends on: its GPUs, their link, adapters.

    `gpus` are those of the node that a plan uses, or has at the most, where experts are
    divided and times calibrated; None elsewhere.
    """

    gpu: str
    intra: LinkRate | None
    adapters: int | None = None
    gpus: int | None = None


def ceil(value: Fraction) -> int:
    """The least integer that is not below `value`."""
    return -((-value.numerator) // value.denominator)


def flops_per_s(gpu: GpuType) -> Fraction:
    """Effective FLOP/s of one GPU: peak x efficiency."""
    return exact(gpu.peak_tflops) * exact(gpu.efficiency) * 10**12


def forward_flops(model: ModelSpec, workload: Workload, layer: int, b: int) -> int:
    """FLOPs of the forward pass of one layer for `b` sequences."""
    s, kind = workload.sequence_length, model.kinds[layer]
    flops = 2 * model.active_parameters[layer] * b * s
    flops += scores_flops(model, workload, layer, b)
    mixers = (model.mixer(part) for part in kind)
    flops += b * s * sum(mixer.sizes.scan for mixer in mixers if mixer is not None)
    if FURTHER in kind and workload.costs.compute.head == "include":
        flops += 2 * model.embedding_parameters * b * s
    return flops


def scores_flops(model: ModelSpec, workload: Workload, layer: int, b: int) -> int:
    """FLOPs of the scores of a layer's attention and of what they weigh, forward."""
    kind = model.kinds[layer]
    flops = 4 * scores(model, workload, layer) * model.of(kind).attention_width
    if model.indexer and any(part in kind for part in ATTENDING):
        s, width = (
            workload.sequence_length,
            model.indexer.heads * model.indexer.head_dim,
        )
        flops += 2 * s * s * width
    return b * flops


def scores(model: ModelSpec, workload: Workload, layer: int) -> int:
    """Scores of a head that are computed for a sequence, by all parts of a layer."""
    s, kind = workload.sequence_length, model.kinds[layer]
    return sum(_scores(model, workload, part, s) for part in kind if part in ATTENDING)


def _scores(model: ModelSpec, workload: Workload, part: str, s: int) -> int:
    chosen = model.indexer.chosen if model.indexer else None
    seen = min(x for x in (model.window if part == WINDOW else None, chosen, s) if x)
    if not workload.costs.compute.flash:
        return s * s
    return scores_within(s, seen, chunked=model.chunked and part == WINDOW)


def passes(costs: CostSettings) -> int:
    """Forward passes that forward and backward together are worth."""
    return 4 if costs.compute.recompute == "full" else 3


def layer_flops(model: ModelSpec, workload: Workload, layer: int, b: int) -> int:
    """FLOPs of both passes of one layer for `b` sequences, and what is recomputed.

    Frozen weights have no gradients, a pass less; adapters have all passes.
    """
    costs = workload.costs
    flops = passes(costs) * forward_flops(model, workload, layer, b)
    if costs.updates.lora is not None:
        tokens = 2 * b * workload.sequence_length
        flops -= tokens * model.active_parameters[layer]
        flops += passes(costs) * tokens * costs.updates.lora.active(model)[layer]
    named, kind = modules_of(costs.compute.recompute), model.kinds[layer]
    if "core_attn" in named:
        flops += scores_flops(model, workload, layer, b)
    repeated = sum(model.of(kind).repeated(part, named) for part in kind)
    return flops + 2 * b * workload.sequence_length * repeated


def reductions(model: ModelSpec, costs: CostSettings, layer: int) -> int:
    """Times (t - 1) / t of a layer's activation that a group exchanges."""
    parts = len(model.kinds[layer]) - (FURTHER in model.kinds[layer])
    if (rule := costs.compute.recompute) == "full":
        return 6 * parts
    whole = [MODULE_OF.get(x) in modules_of(rule) for x in model.kinds[layer]]
    return 4 * parts + 2 * sum(whole)


def backward_share(costs: CostSettings) -> Fraction:
    """Share of a layer's time that is its backward pass, recomputation included.

    Beside adapters, whose attention has all of its gradients, at least that.
    """
    if costs.updates.lora is not None:
        return Fraction(2, 3) if costs.compute.recompute == "full" else Fraction(1, 2)
    return Fraction(3, 4) if costs.compute.recompute == "full" else Fraction(2, 3)


def layer_s(
    model: ModelSpec,
    workload: Workload,
    layer: int,
    gpu: GpuType,
    link: LinkRate | None,
    t: int,
    b: int,
) -> Fraction:
    """Seconds of one layer, forward and backward; `link` is needed when t > 1."""
    compute = layer_flops(model, workload, layer, b) / (t * flops_per_s(gpu))
    if t == 1:
        return compute
    assert link is not None
    latency, bandwidth = link
    each = workload.costs.memory.element_bytes
    activation = Fraction(each * b * workload.sequence_length * model.hidden)
    rounds = reductions(model, workload.costs, layer)
    return compute + rounds * ring_s(activation, t, latency, bandwidth)


def layers_s(
    model: ModelSpec,
    workload: Workload,
    gpu: GpuType,
    link: LinkRate | None,
    t: int,
    b: int,
) -> list[Fraction]:
    """Seconds of every layer, as `layer_s`; equal ones are timed once."""
    sorts = [*zip(model.active_parameters, model.kinds, strict=True)]
    known = {
        sort: layer_s(model, workload, sorts.index(sort), gpu, link, t, b)
        for sort in dict.fromkeys(sorts)
    }
    return [known[sort] for sort in sorts]


def head_s(
    model: ModelSpec, workload: Workload, gpu: GpuType, t: int, b: int
) -> Fraction:
    """Seconds of the head, forward and backward; 0 where it is omitted."""
    if workload.costs.compute.head == "omit":
        return Fraction(0)
    passes_over_it = 3 if workload.costs.updates.lora is None else 2
    tokens = b * workload.sequence_length
    flops = passes_over_it * 2 * model.embedding_parameters * tokens
    return flops / (t * flops_per_s(gpu))
