"""An instance by the fields of trainers' tables.

Fields that a run's row has are called as there (`costs.runs.rows.Run`); `layers` are
without those that predict further tokens. A field that is absent is not known.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ..trainers.megatron import TABLE as MEGATRON
from ..trainers.table import Fields, text_of
from .groups import WHOLE, Split
from .instance import Instance
from .layers import CONVOLUTION, EXPERTS, LINEAR, MAMBA, MAMBA_1, WINDOW, Kind, shape_of
from .model import Architecture, ModelSpec

ONE = Split()
_EIGHT = ("fp8", "mxfp8", "nvfp4")


def fields_of(data: Instance, tp: int) -> Fields:
    """Return the fields of the model and of how it is trained, cut among `tp` GPUs."""
    model, workload = data.model, data.workload
    costs, timed = workload.costs, workload.costs.compute.calibration
    fused = timed is not None and (timed.framework, timed.loss) == ("megatron", "whole")
    made: Fields = {
        **{"layers": model.layers - model.mtp_layers, "mtp_layers": model.mtp_layers},
        **{"hidden": model.hidden, "heads": model.heads, "tp": tp},
        **{"seq": workload.sequence_length, "longest": workload.sequence_length},
        **{"gbs": workload.global_batch, "vocabulary": model.vocabulary},
        **{"intermediate": model.intermediate, "gated": model.gated},
        **{"tied": model.tied_embeddings, "latent": bool(model.latent)},
        # Latent attention has norms of what it compresses.
        **{"qk_norm": model.qk_norm or bool(model.latent), "sinks": has_sinks(model)},
        "mixers": model.mamba is not None or model.mamba1 is not None,
        "precision": costs.memory.precision or "bf16_mixed",
        "products": timed.precision if timed and timed.precision in _EIGHT else "bf16",
        **fields_of_rule(costs.compute.recompute),
        "sequence_parallel": tp > 1
        and bool(costs.compute.sequence_parallel or model.experts),
        "fused_loss": costs.memory.fused_loss or fused,
        "optimiser": costs.memory.optimiser,
        "hosted": costs.memory.hosts_update,
        "zero": costs.updates.zero,
        "zero_groups": costs.updates.zero_groups,
        "lora_rank": None if costs.updates.lora is None else costs.updates.lora.rank,
        **_experts(model),
        **_windows(model, workload.sequence_length),
    }
    if model.common_attention:
        made |= {"kv_heads": model.kv_heads or model.heads, "head_dim": model.key_dim}
    if (of := model.latent) is not None:
        made |= {"q_rank": of.query_rank, "kv_rank": of.key_rank}
        made |= {"plain_dim": of.plain, "rotary_dim": of.rotary, "v_dim": of.value_dim}
    if model.latent or model.mtp_layers:
        made["positions"] = "rope"  # trainers have no other beside these
    if model.experts:
        made["bias"] = model.attention_bias == "all"
    if model.architecture is not None:
        made |= _architecture(model, model.architecture, workload.sequence_length)
    return made


def fields_of_rule(rule: str) -> Fields:
    """Return a rule of whole layers, and the modules that `selective` is told."""
    if rule in WHOLE:
        return {"recompute": rule, "modules": None}
    made = {"recompute": "selective", "modules": tuple(rule.split("+"))}
    return made | ({"grouped": True} if "moe_act" in made["modules"] else {})


def fields_of_split(split: Split) -> Fields:
    """Return the fields of how sequences, experts and layers of a stage are divided."""
    return {
        "cp": split.context,
        "ep": split.experts,
        "etp": 1 if split.experts > 1 else None,  # whole on a GPU then
        "vp": split.interleave,
    }


def _kinds(model: ModelSpec) -> tuple[Kind, ...]:
    """Return the kinds of the layers without those that predict further tokens."""
    return model.kinds[: model.layers - model.mtp_layers]


def _experts(model: ModelSpec) -> Fields:
    if not model.experts:
        return {"experts": 0}
    width = model.expert_intermediate or model.mlp_width
    placed = [int(EXPERTS in kind) for kind in _kinds(model)]
    return {
        "experts": model.experts,
        "experts_per_token": model.active_experts or 0,
        "moe_intermediate": width,
        "shared_width": model.shared_experts * width,
        "expert_layers": placed if 0 in placed else None,
    }


def _windows(model: ModelSpec, length: int) -> Fields:
    """Return the window of those layers that see less than the whole sequence."""
    less = (model.window or 0) < length
    seen = [int(less and WINDOW in kind) for kind in _kinds(model)]
    if model.window is None or 1 not in seen:
        return {}
    return {"window": model.window, "window_layers": seen if 0 in seen else None}


def _architecture(model: ModelSpec, told: Architecture, length: int) -> Fields:
    scaling, router = told.rope_scaling, told.router
    rest = ("low_freq_factor", "high_freq_factor", "original_length")
    made: Fields = {
        **{"norm": told.normalization, "norm_epsilon": told.norm_epsilon},
        **{"dropout": told.dropout, "attention_dropout": told.attention_dropout},
        **{"positions": told.positions, "longest": told.positions_for(length)},
        **{"rope_base": told.rope_base, "bias": told.bias},
        "qkv_bias": told.qkv_bias and not told.bias,
        "activation": f"{'gated ' if model.gated else ''}{told.activation}",
    }
    if model.latent is not None and told.positions == "rope":
        made["rope_type"] = "rope"
    if scaling is not None:
        own = (scaling.factor, *(getattr(scaling, name) for name in rest))
        made[f"rope_{scaling.kind}"] = own if scaling.kind == "llama3" else own[0]
    if router is not None:
        made |= {"router_loss": router.auxiliary_loss, "normalised": router.normalised}
    return made


def has_sinks(model: ModelSpec) -> bool:
    """Return whether each head has a sink beside its scores, as in gpt-oss.

    A layer's parameters tell: what is neither its norms nor its biases.
    """
    return _is_beside_norms(model, model.heads)


def has_wide_norms(model: ModelSpec) -> bool:
    """Return whether one norm spans all heads' queries, one the keys (OLMo 2)."""
    each = 2 * (model.attention_width // model.heads)
    wide = model.attention_width + model.kv_width - each
    return model.qk_norm and wide > 0 and _is_beside_norms(model, wide)


def _is_beside_norms(model: ModelSpec, count: int) -> bool:
    """Return whether an attention has so many parameters more than Megatron's has.

    Those are products, whole norms of the layer, norms of each head, and biases.
    """
    if model.vectors is None or model.vectors.attention is None:
        return False
    width, h = model.attention_width, model.hidden
    joint = width + 2 * model.kv_width
    bias = {"none": 0, "qkv": joint, "all": joint + h}[model.attention_bias]
    norms = 2 * (width // model.heads) if model.qk_norm else 0
    left = model.vectors.attention - bias - norms - count
    return left > 0 and left % h == 0


# --- tensor-parallel degrees ------------------------------------------------------

#: What a tensor-parallel degree divides of mixers without scores, and their names.
_OF_MIXERS: Mapping[str, tuple[tuple[str, ...], str]] = MappingProxyType(
    {
        MAMBA: (("heads", "groups"), "Mamba-2"),
        MAMBA_1: (("channels",), "Mamba-1"),
        LINEAR: (("key heads", "value heads"), "linear attention"),
        CONVOLUTION: (("channels",), "a short convolution"),
    }
)


#: Targets that are started with arguments of Megatron-LM's table.
_BY_TABLE = ("megatron", "megatron_bridge", "flagscale")


def barred(target: str, data: Instance, t: int, split: Split = ONE) -> Iterator[str]:
    """Yield in words why a target runs no groups of a tensor-parallel degree `t`.

    Experts that are divided among GPUs are whole.
    """
    copies = target in (*_BY_TABLE, "architecture")
    if whole := dict.fromkeys(_uncut(data.model, t, split, copies=copies)):
        yield f"{t} does not divide {' and '.join(whole)}"
    if target in _BY_TABLE and t > 1:
        yield from (f"{t}: {words}" for words in violations(data, t, split))


def violations(data: Instance, t: int, split: Split = ONE) -> Iterator[str]:
    """Yield in words the rules of Megatron-LM that a degree's arguments violate."""
    made = MEGATRON.write(fields_of(data, t) | fields_of_split(split))
    texts = {name: text_of(value) for name, value in made.items()}
    for words in MEGATRON.violations(texts):
        yield f"{words}, which Megatron-LM does not start with"


def _uncut(model: ModelSpec, t: int, split: Split, *, copies: bool) -> Iterator[str]:
    """Yield what is not cut equally, if GPUs may have copies of a head's keys."""
    for own in {shape_of(kind): model.of(kind) for kind in model.kinds}.values():
        groups = own.kv_heads or own.heads
        if own.heads % t or (groups % t and (t % groups or not copies)):
            yield f"{own.heads} heads and {groups} key-value heads"
        names = ("intermediate", "expert_intermediate")
        for name in names if split.experts == 1 else names[:1]:
            width = getattr(own, name)
            if width is not None and width % t:
                yield f"{name} {width}"
    for part, (words, name) in _OF_MIXERS.items():
        mixer = model.mixer(part)
        if mixer is not None and any(whole % t for whole in mixer.sizes.whole):
            numbers = zip(mixer.sizes.whole, words, strict=True)
            yield f"{' and '.join(f'{n} {word}' for n, word in numbers)} of {name}"


def permits(data: Instance, split: Split, gpus: int) -> bool:
    """Return whether the target of an instance runs groups of so many GPUs."""
    t, rest = divmod(gpus, split.context)
    if rest:
        return False
    target = data.workload.runs_on
    return target == "any" or next(barred(target, data, t, split), None) is None
