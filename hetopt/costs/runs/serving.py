"""Predictions of measured rows of serving: the seconds of a token, or why not."""

import math
from collections.abc import Sequence
from functools import lru_cache

from ...catalogue import released
from ...schema import ModelSpec
from ...schema.calibration import OF_80_PERCENT
from ..decoding import (
    SEEN,
    DecoderShape,
    Links,
    Serving,
    nearest_card,
    peak,
    terms,
    values,
)
from .description import NotModelled
from .prediction import Prediction
from .rows import Served

PROGRAMS = ("vllm", "sglang", "trtllm")


@lru_cache(1000)  # names come from outside
def _shape(name: str) -> DecoderShape:
    if (fields := released(name)) is None:
        raise NotModelled(f"model {name!r} is not in the catalogue: give one that is")
    return DecoderShape.of(ModelSpec(**fields))


def described(row: Served) -> tuple[DecoderShape, dict[str, float]]:
    """Return the model of a row, and its seconds by constant, before the constants.

    Raises `NotModelled` with the reason where the row has none.
    """
    shape, card, of = _shape(row.model_path), nearest_card(row.system), row.in_precision
    if card is None:
        raise NotModelled(f"system {row.system!r} is not one of `hetopt list gpus`")
    if (program := row.backend.lower()) not in PROGRAMS:
        raise NotModelled(f"backend {row.backend!r} is none of {', '.join(PROGRAMS)}")
    if row.mode not in ("agg", ""):
        raise NotModelled(f"mode {row.mode!r}: prompts elsewhere are not modelled")
    gpus, side = row.groups(sparse=shape.sparse > 0)
    tflops = peak(card.peak_tflops, card.peaks, of)
    rates = tflops, card.peak_tflops, card.memory_gbytes_per_s
    links = Links(card.link_gbytes_per_s)
    on = Serving(*rates, links, gpus, max(1, gpus // side), of, program)
    # A stage of a pipeline has a part of the answers at a time.
    answers = row.batch_size * (row.attention_dp_size or 1) / row.pp_size
    return shape, terms(shape, on, answers, answers / row.osl, (row.isl, row.osl))


def not_calibrated(rows: Sequence[Served]) -> tuple[str, ...]:
    """Return the systems whose cards no constant was fitted on."""
    found = ((x, nearest_card(x)) for x in sorted({row.system for row in rows}))
    return tuple(x for x, card in found if card and card.name not in SEEN)


def decoded(index: int, row: Served) -> Prediction:
    """Predict the seconds of a token, or say why not."""
    try:
        shape, found = described(row)
    except NotModelled as why:
        return Prediction(index, not_modelled=str(why))
    noise = values()["noise.experts" if shape.sparse else "noise.dense"]
    wide = math.hypot(noise, values()["noise.card"] if not_calibrated([row]) else 0)
    by_term = {name: x * values()[name] for name, x in found.items()}
    token, factor = sum(by_term.values()), math.exp(OF_80_PERCENT * wide)
    return Prediction(index, token, token / factor, token * factor, terms=by_term)
