"""Training needs so many bytes of each parameter, by optimiser and precision."""

from fractions import Fraction
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from .layers import EXPERTS, MIXERS
from .model import ModelSpec
from .record import GbytesPerS, Record


class StateBytes(NamedTuple):
    """Bytes of a parameter: its weight, its gradient, what the optimiser keeps."""

    weight: int | Fraction
    gradient: int
    optimiser: int | Fraction

    @property
    def whole(self) -> int | Fraction:
        """All of them."""
        return self.weight + self.gradient + self.optimiser


#: Adam's two moments, and a master copy in single precision where it is mixed.
PRECISIONS: dict[str, StateBytes] = {
    "fp32": StateBytes(4, 4, 8),
    "bf16": StateBytes(2, 2, 4),
    "bf16_mixed": StateBytes(2, 2, 12),
    "fp16_mixed": StateBytes(2, 2, 12),
    "bf16_fp32_gradients": StateBytes(2, 4, 12),
}

Optimiser = Literal["adamw", "sgd", "adafactor", "muon", "adamw_8bit"]

#: Moments of a parameter that an optimiser keeps in the precision of AdamW's: the
#: momentum alone (SGD; Muon, arXiv 2502.16982), or sums over rows and columns, a few
#: thousandths of a byte that are left out (Adafactor, arXiv 1804.04235).
_MOMENTS = {"adamw": 2, "sgd": 1, "muon": 1, "adafactor": 0}
#: Two moments of eight bits, and for 256 of each a scale (arXiv 2110.02861; blocks of
#: bitsandbytes).
_OF_8_BITS = 2 * (1 + Fraction(4, 256))


def states_of(precision: str | None, optimiser: str) -> StateBytes | None:
    """Return the bytes that training keeps of a parameter; None without a precision."""
    if precision is None:
        return None
    weight, gradient, of_adam = PRECISIONS[precision]
    width = 2 if precision == "bf16" else 4
    master = of_adam - 2 * width
    moments: int | Fraction = _OF_8_BITS
    if optimiser in _MOMENTS:
        moments = _MOMENTS[optimiser] * width
    return StateBytes(weight, gradient, master + moments)


class Offload(Record):
    """A host's memory may hold the optimiser's states, at its link's rate.

    The host's processors do the update: gradients go to the host and weights come
    back, once an iteration; the GPUs of a node share the rate of its memory. Source:
    ZeRO-Offload, arXiv 2101.06840, section 3.
    """

    memory_gbytes_per_s: GbytesPerS = 100


#: Bytes of a quantised weight. Of four bits, blocks of 64 share a scale of eight, and
#: 256 of these one of 32: 4.127 bits (QLoRA, arXiv 2305.14314, section 3).
QUANTISED: dict[int, int | Fraction] = {
    4: Fraction(4, 8) + Fraction(1, 64) + Fraction(4, 64 * 256),
    8: 1,
}


class Lora(Record):
    """Low-rank adapters beside the matrices of the layers; all else is frozen.

    A matrix of m x n gets r (m + n) parameters at rank r: queries, keys, values and
    output, and with `beside: all` the MLP's matrices, those of every expert; none
    beside embedding, head and router. Source: LoRA, arXiv 2106.09685, section 4.1;
    quantised weights QLoRA's, arXiv 2305.14314.
    """

    rank: Annotated[int, Field(ge=1, le=65_536)]
    beside: Literal["all", "attention"] = "all"
    weight_bits: Literal[4, 8] | None = None

    def frozen_bytes(self, weight: int | Fraction) -> int | Fraction:
        """Bytes of a frozen weight of a layer that has `weight` where it is trained."""
        return weight if self.weight_bits is None else QUANTISED[self.weight_bits]

    def parameters(self, model: ModelSpec) -> tuple[int, ...]:
        """Return the parameters of the adapters of each layer."""
        return self._count(model, model.experts)

    def active(self, model: ModelSpec) -> tuple[int, ...]:
        """Return the parameters of the adapters that a token uses."""
        return self._count(model, model.active_experts)

    def routed(self, model: ModelSpec) -> tuple[int, ...]:
        """Return the parameters of adapters of routed experts."""
        one = self._expert(model) * (model.experts or 0)
        return tuple(one * (EXPERTS in kind) for kind in model.kinds)

    def _count(self, model: ModelSpec, experts: int | None) -> tuple[int, ...]:
        h = model.hidden
        attention = 4 * h + 2 * model.attention_width + 2 * model.kv_width
        dense = (3 if model.gated else 2) * (h + model.mlp_width)
        many = (experts or 0) + model.shared_experts
        mlp = {True: self._expert(model) * many, False: self.rank * dense}
        if self.beside == "attention":
            mlp = dict.fromkeys(mlp, 0)
        return tuple(self.rank * attention + mlp[EXPERTS in x] for x in model.kinds)

    def _expert(self, model: ModelSpec) -> int:
        if self.beside == "attention":
            return 0
        width = model.expert_intermediate or model.mlp_width
        return self.rank * (3 if model.gated else 2) * (model.hidden + width)


def lora_fault(model: ModelSpec) -> str | None:
    """Return why adapters cannot be counted, with the remedy; None if they can."""
    parts = {part for kind in model.kinds for part in kind}
    plain = {*map(len, model.kinds)} == {2} and not parts & {*MIXERS, "further"}
    if not plain or not model.common_attention or model.expert_hidden:
        return (
            f"found layers of model {model.name!r} that are not attention and an MLP "
            "(latent, mamba, mtp_layers, layer_kinds), whose adapters are not "
            "modelled; train all weights"
        )
    if model.layer_shapes:
        return (
            f"found layer_shapes of model {model.name!r}, whose adapters are not "
            "modelled; train all weights"
        )
    listed = ("layer_parameters", "parameters_per_layer", "active_layer_parameters")
    for field in listed:
        if getattr(model, field) is not None:
            return (
                f"found {field} of model {model.name!r}, expected the shapes of its "
                "matrices (intermediate, kv_heads, gated, ...) for LoRA's adapters; "
                "give these, or train all weights"
            )
    return None
