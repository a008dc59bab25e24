"""Bytes that a layer keeps for its backward pass, read off its architecture.

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

A layer of one part has half of the norms and masks; norms behind a part, too, are as
many again. Queries and keys that are normed are kept twice, a gate of attention's
output and what it gates once. Keys that are those of another layer are kept there. A
mixer without scores keeps what `hetopt.schema.layers` says, Mamba-2 five tensors of its
width (gate, what the convolution takes and gives, output, gated) and four of its
states; an indexer its queries, key and weights; latent attention also what it
compresses, whole. Experts keep the I of those that a token uses, and the token for each
(where `layer_kinds` tell them); a layer that predicts further tokens 4 H e of what it
joins. A window saves nothing:
without flash attention it is a mask.
"""

from fractions import Fraction
from typing import NamedTuple

from ..schema import ModelSpec, Workload
from ..schema.layers import ATTENDING, DENSE, EXPERTS, FURTHER, Parts
from .traffic import inner_width, routed_width

_NORM_TENSORS = {"layer": 4, "layer_from_output": 3, "rms": 4, "rms_unfused": 8}


class Saved(NamedTuple):
    """Bytes that one layer keeps on one GPU for one micro-batch."""

    whole: Fraction
    shared: Fraction
    scores: Fraction


def saved(model: ModelSpec, workload: Workload, kind: Parts, t: int, b: int) -> Saved:
    """Return the bytes of a layer on each of `t` GPUs for `b` sequences, all kept."""
    tokens, costs, model = b * workload.sequence_length, workload.costs, model.of(kind)
    e, attending = costs.memory.element_bytes, _attending(kind)
    whole = tokens * _whole(model, kind, e)
    if costs.compute.sequence_parallel:
        whole /= t
    if model.latent:
        x = model.latent
        low = x.query_rank + x.key_rank + x.rotary
        whole += tokens * e * low * attending
    if model.indexer:
        y = model.indexer
        whole += tokens * e * (y.heads * (y.head_dim + 1) + y.head_dim) * attending
    shared = Fraction(tokens * sum(_shared(model, part, e) for part in kind), t)
    scores = 0 if costs.compute.flash else attending * _scores(model, workload)
    return Saved(whole, shared, Fraction(tokens * scores, t))


def standard(
    model: ModelSpec, workload: Workload, kind: Parts, t: int, b: int
) -> Saved:
    """Return them by the common formula; parts other than its two in proportion."""
    costs, e, model = (
        workload.costs,
        workload.costs.memory.element_bytes,
        model.of(kind),
    )
    h, attending = model.hidden, _attending(kind)
    tokens = b * workload.sequence_length
    parts = len(kind) - (FURTHER in kind)
    whole = Fraction(tokens * parts * (2 * e + 1) * h)
    if costs.compute.recompute == "selective" and costs.compute.sequence_parallel:
        whole /= t
    whole += tokens * 4 * e * h * (FURTHER in kind)
    mixers = [mixer for part in kind if (mixer := model.mixer(part))]
    mlps = sum(part in (DENSE, EXPERTS) for part in kind)
    shared = e * (4 * h * attending + 8 * h * mlps + sum(x.sizes.kept for x in mixers))
    scores = 0
    if not costs.compute.flash:
        scores = attending * (2 * e + 1) * model.heads * workload.sequence_length
    return Saved(whole, Fraction(tokens * shared, t), Fraction(tokens * scores, t))


def working_bytes(
    model: ModelSpec, workload: Workload, kind: Parts, t: int, b: int
) -> Fraction:
    """Return what a layer's backward pass holds beside what was kept, at its widest.

    The gradients of a residual sum and of a branch, and either those of scores and
    probabilities or those of the MLP's, or the mixer's, wide tensors.
    """
    costs, model = workload.costs, model.of(kind)
    e, tokens = costs.memory.element_bytes, b * workload.sequence_length
    sums = Fraction(2 * e * model.hidden, t if costs.compute.sequence_parallel else 1)
    wide = [0]
    if not costs.compute.flash and _attending(kind):
        wide.append(2 * e * model.heads * workload.sequence_length)
    for part in kind:
        if part in (DENSE, EXPERTS):
            wide.append((3 if model.gated else 2) * e * inner_width(model, part))
        if mixer := model.mixer(part):
            wide.append(3 * e * mixer.sizes.inner)
    return tokens * (sums + Fraction(max(wide), t))


def _attending(kind: Parts) -> int:
    """Return how many parts have scores."""
    return sum(part in ATTENDING for part in kind)


def _whole(model: ModelSpec, kind: Parts, e: int) -> Fraction:
    parts = len(kind) - (FURTHER in kind)
    norms = Fraction(_NORM_TENSORS[model.norm] * parts, 2) * (1 + model.post_norm)
    masks = parts * model.hidden if model.dropout else 0
    return norms * model.hidden * e + masks + 4 * model.hidden * e * (FURTHER in kind)


def _shared(model: ModelSpec, part: str, e: int) -> int:
    if part == FURTHER:
        return 0
    if (mixer := model.mixer(part)) is not None:
        return e * mixer.sizes.kept
    if part in (DENSE, EXPERTS):
        copies = 4 if model.gated else 1 if model.activation == "relu" else 2
        kept = copies * inner_width(model, part)
        if part == EXPERTS and model.layer_kinds is not None:
            kept += (model.active_experts or 0) * routed_width(model)
        return e * kept
    keys = model.kv_products * model.kv_width
    normed = model.attention_width + keys // 2 if model.qk_norm else 0
    gated = 2 * model.gate_width
    return e * (2 * model.attention_width + keys + normed + gated)


def _scores(model: ModelSpec, workload: Workload) -> int:
    """Return the scores of one token: a row of the softmax of every head."""
    e = workload.costs.memory.element_bytes
    each = 2 * e + 1 if model.attention_dropout else e
    return each * model.heads * workload.sequence_length
