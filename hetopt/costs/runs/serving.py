"""Measured rows of serving: what a token took, and what decoding predicts for it."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from ...catalogue import Gpu, called, find_gpu, released
from ...schema import ModelSpec
from ...schema.calibration import OF_80_PERCENT
from ...schema.record import SIZED
from ..decoding import PROGRAMS, DecoderShape, Serving, peak, seconds, terms, value
from .prediction import Summary, summary

_Whole = Annotated[int, Field(ge=0, le=10**6)]
_Some = Annotated[int, Field(ge=1, le=10**7)]
_Text = Annotated[str, Field(max_length=200)]
#: Cards that the constants were fitted on.
_SEEN = (
    *("H100-80GB-SXM5", "H200-141GB-SXM5", "B200-180GB-SXM", "B300-270GB-SXM"),
    "GB200-186GB",
)
#: Precisions by what names of models and of their products say, in this order.
_WORDS = {
    **{"mxfp4": "mxfp4", "fp4": "nvfp4", "int4": "int4", "w4a": "int4"},
    **{"mxfp8": "mxfp8", "fp8": "fp8", "int8": "int8", "w8a": "int8"},
    **{"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16"},
}
#: Models that are released in less than 16 bits.
_RELEASED = {
    **{"gpt-oss": "mxfp4", "deepseek-r1-distill": "bf16", "deepseek-": "fp8"},
    **{"kimi-k2.5": "int4", "kimi-k2-thinking": "int4", "kimi": "fp8"},
}
_NODE = 8  # GPUs of most machines


class Served(BaseModel):
    """One row: an engine, what it generated, and the time of a token.

    The names are those of AIConfigurator's tables. An engine has `tp_size` x
    `attention_dp_size` GPUs a stage, or, where that is more, `moe_tp_size` x
    `moe_ep_size`.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    id: _Text = ""
    backend: _Text = PROGRAMS[0]
    model_path: _Text
    system: _Text
    precision: _Text = ""
    mode: _Text = "agg"
    isl: _Some = Field(description="Tokens of a prompt.")
    osl: _Some = Field(description="Tokens of an answer.")
    gemm_quant_mode: _Text = ""
    moe_quant_mode: _Text = ""
    batch_size: _Some = Field(description="Answers in flight, of an attention group.")
    tp_size: Annotated[int, Field(ge=1, le=10**5)] = 1
    pp_size: Annotated[int, Field(ge=1, le=10**5)] = 1
    attention_dp_size: _Whole = 1
    moe_tp_size: _Whole = 1
    moe_ep_size: _Whole = 1
    silicon_tpot_ms: Annotated[float, Field(gt=0, lt=1e9), SIZED] | None = None

    @property
    def in_precision(self) -> str:
        """Return the precision of the weights, of mixtures that of the experts."""
        quantised = self.moe_quant_mode or self.gemm_quant_mode
        for text in (self.precision, quantised, self.model_path):
            for word, name in _WORDS.items():
                if word in text.lower():
                    return name
        model = self.model_path.rpartition("/")[2].lower()
        return next((y for x, y in _RELEASED.items() if model.startswith(x)), "bf16")

    def groups(self, *, sparse: bool) -> tuple[int, int]:
        """Return the GPUs of a stage, and the groups among them that attend alone.

        Some tables multiply the degrees of mixtures with themselves: 8 GPUs with
        experts on 8 are there tp 64 or attention_dp 64, and moe 8 x 8.
        """
        side = self.attention_dp_size or 1
        gpus, tp, ep = self.tp_size * side, self.moe_tp_size, self.moe_ep_size
        if not sparse:
            return gpus, side
        if tp == ep and tp * ep == gpus > _NODE:
            return tp, (tp if side > 1 else 1)
        if ep == gpus and self.tp_size == side > 1:
            return side, side
        whole = max(gpus, tp * ep)
        return whole, max(1, whole // self.tp_size)


class Decoded(NamedTuple):
    """What decoding predicts for a row, in ms for each token; None where nothing."""

    row: int
    tpot_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    not_modelled: str | None = None
    calibrated: bool = True


def card_of(system: str) -> Gpu | None:
    """Return the card of a system: `h100_sxm`, `gb200`; of several that in this form.

    Where several sizes have it, it is the one with the most memory.
    """
    if (card := find_gpu(system)) is not None:
        return card
    name, _, form = system.lower().partition("_")
    cards = called(name)
    shaped = [card for card in cards if form and form in card.name.lower()]
    return max(shaped or cards[:1], key=lambda card: card.memory_gib, default=None)


@lru_cache(1000)  # names come from outside
def _shape(name: str) -> DecoderShape | None:
    fields = released(name)
    return None if fields is None else DecoderShape.of(ModelSpec(**fields))


def described(row: Served) -> tuple[DecoderShape, Serving, float] | str:
    """Return a row in decoding's terms, with the answers in flight; or what lacks."""
    shape, card = _shape(row.model_path), card_of(row.system)
    if shape is None:
        return f"model {row.model_path!r} is not in the catalogue"
    if card is None:
        return f"system {row.system!r} is not in the catalogue; see `hetopt list gpus`"
    if (program := row.backend.lower()) not in PROGRAMS:
        return f"backend {row.backend!r}: expected one of {', '.join(PROGRAMS)}"
    if row.mode not in ("agg", ""):
        return f"mode {row.mode!r}: prompts elsewhere are not modelled, expected agg"
    gpus, side = row.groups(sparse=shape.sparse > 0)
    of = card.memory_gbytes_per_s * 1e9, card.link_gbytes_per_s * 1e9
    precision = row.in_precision
    flops = peak(card.peak_tflops, card.peaks, precision) * 1e12
    on = Serving(flops, *of, gpus, max(1, gpus // side), precision, program)
    # A stage of a pipeline has a part of the answers at a time.
    return shape, on, row.batch_size * (row.attention_dp_size or 1) / row.pp_size


def parts(row: Served) -> dict[str, float] | str:
    """Return a row's seconds by constant, before the constants; or what lacks."""
    found = described(row)
    if isinstance(found, str):
        return found
    shape, on, answers = found
    return terms(shape, on, answers, answers / row.osl, row.isl, row.osl)


def decoded(rows: Sequence[Served]) -> list[Decoded]:
    """Predict every row, in order; nothing is left out."""
    return [_decoded(index, row) for index, row in enumerate(rows)]


def _decoded(index: int, row: Served) -> Decoded:
    found = parts(row)
    if isinstance(found, str):
        return Decoded(index, not_modelled=found)
    sparse = any(x for name, x in found.items() if name.startswith("layer.experts"))
    card = card_of(row.system)
    known = card is not None and card.name in _SEEN
    noise = value("noise.experts" if sparse else "noise.dense")
    wide = math.hypot(noise, 0 if known else value("noise.card"))
    ms, factor = 1000 * seconds(found), math.exp(OF_80_PERCENT * wide)
    return Decoded(index, ms, ms / factor, ms * factor, calibrated=known)


def errors(rows: Sequence[Served], found: Sequence[Decoded]) -> Mapping[str, Summary]:
    """Return the errors of all rows, and by model and system."""
    by_set: dict[str, list[tuple[float | None, float | None]]] = {"all": []}
    for row, one in zip(rows, found, strict=True):
        for name in ("all", f"{row.model_path} on {row.system}"):
            by_set.setdefault(name, []).append((row.silicon_tpot_ms, one.tpot_ms))
    return {name: summary(pairs) for name, pairs in by_set.items()}
