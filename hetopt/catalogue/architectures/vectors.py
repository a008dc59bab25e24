"""Parameters that are in no matrix of a product: norms, biases, sinks, positions.

Small matrices that no field of a model tells are among those of their part.
"""

from collections.abc import Sequence

from ...schema import ModelSpec, Vectors
from ...schema.layers import ATTENDING, DENSE, EXPERTS, FURTHER, Kind
from .families import Traits
from .keys import Fields, Reading, whole

Counts = dict[str, int]
#: The family whose layers have embeddings of their own.
WITH_INPUTS = "gemma4_text"


def of_layers(
    config: Reading, family: str, own: Traits, spec: ModelSpec, told: list[Fields]
) -> Fields:
    """Return `vectors` of a model, and put those of layers that differ into `told`.

    Most frequent is what the model's field has; a layer of another shape has its own.
    """
    kinds = sorted(dict.fromkeys(spec.kinds), key=lambda kind: kind.shape is not None)
    counted = {
        kind: _of_kind(config, family, own, spec.of(kind), kind) for kind in kinds
    }
    usual = {kind: _usual(spec.of(kind), kind) for kind in kinds}
    base: Counts = {}
    for kind in kinds:
        base = {**counted[kind], **base}
    plain = {name: _beside(spec, name) for name in base}
    base = {name: x for name, x in base.items() if x != plain[name]}
    for shape, kind in zip(told, spec.kinds, strict=True):
        if (
            usual[kind] | {x: base[x] for x in usual[kind].keys() & base}
            != counted[kind]
        ):
            pairs = counted[kind].items()
            shape["vectors"] = {x: y for x, y in pairs if y != usual[kind][x]}
    return base


def _usual(spec: ModelSpec, kind: Kind) -> Counts:
    return {name: _beside(spec, name) for name in _names(kind)}


def _names(kind: Sequence[str]) -> list[str]:
    """Return the fields of `Vectors` that the parts of a layer have."""
    names = ["attention" if part in ATTENDING else part for part in kind]
    names += ["expert"] if EXPERTS in kind else []
    return [name for name in dict.fromkeys(names) if name != FURTHER]


def _beside(spec: ModelSpec, name: str) -> int:
    return 0 if name == "expert" else spec.beside(name, Vectors())


def _of_kind(
    config: Reading, family: str, own: Traits, spec: ModelSpec, kind: Kind
) -> Counts:
    """Return the parameters of each part of a layer that are in no matrix."""
    norm = spec.hidden * (2 if own.norm_bias else 1)
    first, second = {1: (1, 0), 2: (1, 1), 4: (2, 2)}[own.norms]
    found = _usual(spec, kind)
    if "attention" in found:
        found["attention"] += (first - 1 - spec.post_norm) * spec.hidden
        found["attention"] += first * (norm - spec.hidden)
        if own.qk_wide:
            each = 2 * (spec.attention_width // spec.heads)
            found["attention"] += spec.attention_width + spec.kv_width - each
    for name in found.keys() & {DENSE, EXPERTS}:
        found[name] = second * norm
    if DENSE in found and own.mlp_bias:
        found[DENSE] += (2 if spec.gated else 1) * spec.mlp_width + spec.hidden
    _of_families(config, family, spec, kind, found)
    return found


def _of_families(
    config: Reading, family: str, spec: ModelSpec, kind: Kind, found: Counts
) -> None:
    h, experts = spec.hidden, spec.experts or 0
    if family in ("gpt_oss", "flint") and "attention" in found:
        found["attention"] += spec.heads  # a sink for each
    if EXPERTS in found:
        if family == "gpt_oss":
            each = spec.expert_intermediate or spec.mlp_width
            found[EXPERTS] += experts  # the router's bias
            found["expert"] = 2 * each + h
        if family in ("ernie4_5_moe", "afmoe"):
            found[EXPERTS] += experts  # the router's correction
        if family in ("qwen2_moe", "qwen3_next", "qwen3_5_moe_text"):
            found[EXPERTS] += h  # what the shared expert is weighed by
        if family == "gemma4_text":  # three norms, and scales of the router
            found[EXPERTS] = 4 * h + experts
    if DENSE in found and family == "apertus":
        found[DENSE] += 2  # of its activation, xIELU
    if DENSE in found and family == WITH_INPUTS:
        # The matrices and the norm of an embedding that each layer has.
        wide = whole(config, "hidden_size_per_layer_input") or 0
        found[DENSE] += 3 * h * wide + h if wide else 0


def beside_layers(config: Reading, family: str, own: Traits, spec: ModelSpec) -> int:
    """Return the last norm, positions and types that are learned, the head's bias."""
    norm = spec.hidden * (2 if own.norm_bias else 1)
    found = norm * (2 if own.embedding_norm else 1)
    if own.positions is not None:
        rows = whole(config, "n_positions", "max_position_embeddings") or 0
        found += (rows + own.positions) * spec.hidden
    found += (whole(config, "type_vocab_size") or 0) * spec.hidden
    if family == WITH_INPUTS:
        found += whole(config, "hidden_size_per_layer_input") or 0  # a norm
    return found + (spec.vocabulary if own.head_bias else 0)
