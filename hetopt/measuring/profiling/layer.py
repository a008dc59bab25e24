"""How wide a model's layer is on one GPU of a tensor-parallel group."""

from ...errors import InstanceError, Unsupported
from ...schema import ModelSpec
from ..decoder import Shard


def shard(model: ModelSpec, t: int) -> Shard:
    """The widths at degree `t`; `InstanceError` where they are not divisible."""
    if model.experts:
        raise Unsupported(
            f"model {model.name!r} has experts, whose load a layer by itself does not "
            "tell; expected a dense model"
        )
    if not model.common_attention or {*model.kinds} != {("attention", "dense")}:
        raise Unsupported(
            f"model {model.name!r} has layers other than attention and an MLP "
            "(latent, layer_kinds, mtp_layers), which are not profiled; expected a "
            "dense model"
        )
    kv_heads, width = model.kv_heads or model.heads, model.mlp_width
    for field, number in (("heads", model.heads), ("intermediate", width)):
        if number % t:
            raise InstanceError(
                f"tensor-parallel degree {t} does not divide {field} {number} of "
                f"model {model.name!r}: leave it out"
            )
    return Shard(
        model.hidden,
        model.heads // t,
        max(1, kv_heads // t),
        model.attention_width // model.heads,
        width // t,
        model.gated,
        model.activation,
        model.norm.startswith("rms") or model.gated,
    )
