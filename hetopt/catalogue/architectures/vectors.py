"""Parameters that are in no matrix of a product: norms, biases, sinks, positions."""

from ...schema import ModelSpec
from .families import Traits
from .keys import Fields, Reading, whole


def of_parts(config: Reading, family: str, own: Traits, spec: ModelSpec) -> Fields:
    """`ModelSpec.vectors`, of the parts that have others than follow from the rest."""
    norm = spec.hidden * (2 if own.norm_bias else 1)
    first, second = {1: (1, 0), 2: (1, 1), 4: (2, 2)}[own.norms]
    shared = (spec.latent.query_rank + spec.latent.key_rank) if spec.latent else 0
    usual = (1 + spec.post_norm) * spec.hidden
    bias, plain = 0, shared
    if not spec.latent:
        width = spec.attention_width
        shared = plain = 2 * (width // spec.heads) if spec.qk_norm else 0
        if own.qk_wide:
            shared = width + spec.kv_width
        joint = width + 2 * spec.kv_width
        bias = {"none": 0, "qkv": joint, "all": joint + spec.hidden}[own.attention_bias]
    found = {
        "attention": first * norm + shared + bias,
        "dense": second * norm + _mlp(own, spec, spec.mlp_width),
        "experts": second * norm,
        "expert": 0,
    }
    if family == "gpt_oss":
        found["attention"] += spec.heads  # a sink for each
        found["experts"] += spec.experts or 0  # the router's bias
        each = spec.expert_intermediate or spec.mlp_width
        found["expert"] = 2 * each + spec.hidden
    if family == "ernie4_5_moe":
        found["experts"] += spec.experts or 0  # the router's correction
    if family == "qwen2_moe":
        found["experts"] += spec.hidden  # what the shared expert is weighed by
    follows = {
        "attention": usual + plain + bias,
        "dense": usual,
        "experts": usual,
        "expert": 0,
    }
    used = {part for kind in spec.kinds for part in kind}
    used |= {"attention"} if "window" in used else set()
    used |= {"expert"} if "experts" in used else set()
    return {name: x for name, x in found.items() if name in used and x != follows[name]}


def _mlp(own: Traits, spec: ModelSpec, width: int) -> int:
    return (2 if spec.gated else 1) * width + spec.hidden if own.mlp_bias else 0


def beside_layers(config: Reading, own: Traits, spec: ModelSpec) -> int:
    """Return the last norm, positions and types that are learned, the head's bias."""
    norm = spec.hidden * (2 if own.norm_bias else 1)
    found = norm * (2 if own.embedding_norm else 1)
    if own.positions is not None:
        rows = whole(config, "n_positions", "max_position_embeddings") or 0
        found += (rows + own.positions) * spec.hidden
    found += (whole(config, "type_vocab_size") or 0) * spec.hidden
    return found + (spec.vocabulary if own.head_bias else 0)
