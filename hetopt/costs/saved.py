"""What a layer keeps for its backward pass, read off its architecture.

Bytes a token, with e bytes an element, width H, W of the queries, K of the keys and of
the values, I of the MLP, a heads and S tokens; shared ones lie on all t GPUs in parts.

    whole   norms        c H e, two norms: layer 4 (input and output of each), from
                         output 3 (its outputs, and the sum that follows), rms 4, of
                         single operators 8 (what is squared, scaled and weighted too)
            dropout      2 H masks of one byte
    shared  attention    2 W e (queries, context) + 2 K e
            MLP          gelu 2 I e (input, output), relu I e (one tensor is both),
                         gated 4 I e (gate, other half, their product, its activation)
    scores  softmax      a S e, none with flash attention; with dropout a S more for
                         the mask and a S e for what is left

At e = 2, with gelu, layer norms, dropout, W = K = H and I = 4 H that is Megatron's
10 H + 24 H / t + 5 a S / t (arXiv 2205.05198, Eq. 1). Without dropout and at e = 4, in
numbers of 4 bytes, what Sailor's profiler finds of three families (SOSP 2025):
3 H + 8 H / t + a S / t (OPT), 8 H + 20 H / t + a S / t (LLaMA with I = 4 H), and with
the two masks 4.5 H + 12 H / t + a S / t (GPT-Neo). The eight of single operators are
as measured there; a count of saved tensors finds six.
"""

from fractions import Fraction
from typing import NamedTuple

from ..schema import ModelSpec, Workload

_NORM_TENSORS = {"layer": 4, "layer_from_output": 3, "rms": 4, "rms_unfused": 8}


class Saved(NamedTuple):
    """Bytes that one layer keeps on one GPU for one micro-batch."""

    whole: Fraction
    shared: Fraction
    scores: Fraction


def saved(model: ModelSpec, workload: Workload, t: int, b: int) -> Saved:
    """What a layer keeps on each of `t` GPUs for `b` sequences, nothing recomputed."""
    tokens, costs = b * workload.sequence_length, workload.costs
    whole = Fraction(tokens * _whole(model, costs.element_bytes))
    if costs.sequence_parallel:
        whole /= t
    shared = Fraction(tokens * _shared(model, costs.element_bytes), t)
    scores = 0 if costs.flash else _scores(model, workload)
    return Saved(whole, shared, Fraction(tokens * scores, t))


def working_bytes(model: ModelSpec, workload: Workload, t: int, b: int) -> Fraction:
    """What a layer's backward pass holds beside what was kept, at its widest.

    The gradients of a residual sum and of a branch, and either those of scores and
    probabilities or those of the MLP's wide tensors.
    """
    costs = workload.costs
    e, tokens = costs.element_bytes, b * workload.sequence_length
    sums = Fraction(2 * e * model.hidden, t if costs.sequence_parallel else 1)
    scores = 0 if costs.flash else 2 * e * model.heads * workload.sequence_length
    wide = (3 if model.gated else 2) * e * model.mlp_width
    return tokens * (sums + Fraction(max(scores, wide), t))


def _whole(model: ModelSpec, e: int) -> int:
    masks = 2 * model.hidden if model.dropout else 0
    return _NORM_TENSORS[model.norm] * model.hidden * e + masks


def _shared(model: ModelSpec, e: int) -> int:
    attention = 2 * model.attention_width + 2 * model.kv_width
    copies = 4 if model.gated else 1 if model.activation == "relu" else 2
    return e * (attention + copies * model.mlp_width)


def _scores(model: ModelSpec, workload: Workload) -> int:
    """Of one token: a row of the softmax of every head."""
    e = workload.costs.element_bytes
    each = 2 * e + 1 if model.attention_dropout else e
    return each * model.heads * workload.sequence_length
