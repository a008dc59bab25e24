"""The table of what each program keeps of a trained parameter, and how it is told.

A row is of one program and one precision of ours (`costs.precision`): bytes of weights,
of gradients while they are summed up, of gradients as replicas exchange them, of the
master copy and of AdamW's two moments; and the program's own words for it. The judge
weighs a precision by `PRECISIONS`, exporters write the words: a test holds both to this
table, and the words to the defaults of each program. The page of it is
`hetopt/formats/README.md`.

A precision without a row is not what the program launches. Where it only keeps
gradients wider, plans for it are made and weighed so (`launched`).

Sources: Megatron-LM, megatron/training/arguments.py, `validate_args` (core 0.12 to
0.20): with --bf16, gradients are added up and reduced in fp32 unless
--grad-reduce-in-bf16. Megatron-Bridge 0.6, training/mixed_precision.py. FlagScale hands
its words to Megatron. DeepSpeed 0.19, runtime/engine.py, `get_data_types` and
`communication_data_type`. torchtitan 0.3, config/configs.py: `mixed_precision_reduce`
is float32 alone. transformers 5.24, trainer.py, and LLaMA-Factory 0.9.5,
model/adapter.py: weights are in fp32, as are gradients, and products in bf16 by
autocast; FSDP of Accelerate 1.15 exchanges gradients in bf16, half of what is counted.
HexiScale has no row: FSDP in fp16, of whose words we write none.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ..text.documents import Fields


class Launched(NamedTuple):
    """Bytes of a parameter by what they are, and the words that ask for it."""

    weight: int
    gradient: int
    reduced: int
    master: int
    moments: int
    words: Mapping[str, object]


_SINGLE, _NARROW, _WIDE = (4, 4, 4, 0, 8), (2, 2, 2, 4, 8), (2, 4, 4, 4, 8)
_NO_MASTER = (2, 2, 2, 0, 4)


def _deepspeed_words(kind: str, gradients: str) -> dict[str, object]:
    """Return the words of a configuration of DeepSpeed."""
    return {
        "bf16": {"enabled": kind == "bf16"},
        "fp16": {"enabled": kind == "fp16"},
        "data_types": {"grad_accum_dtype": gradients},
        "communication_data_type": gradients,
    }


def _of_bridge(recipe: str | None, *, wide: bool) -> dict[str, object]:
    """A recipe of Megatron-Bridge, and a field of it; without one all is fp32."""
    fields = {} if recipe is None else {"grad_reduce_in_fp32": wide}
    return {"mixed_precision": recipe, **fields}


#: The bytes of those precisions that Megatron-LM's table has.
_BYTES = {
    "fp32": _SINGLE,
    "fp16_mixed": _NARROW,
    "bf16_mixed": _NARROW,
    "bf16_fp32_gradients": _WIDE,
}
_MEGATRON = {kind: Launched(*row, {}) for kind, row in _BYTES.items()}
#: Recipes of Megatron-Bridge.
_RECIPES: dict[str, str | None] = {
    "fp32": None,
    "fp16_mixed": "fp16_mixed",
    "bf16_mixed": "bf16_mixed",
    "bf16_fp32_gradients": "bf16_mixed",
}

#: Weights of `dtype` are what is trained; in `bf16` they are copied for each product.
_TRANSFORMERS = {
    "fp32": Launched(*_SINGLE, {"dtype": "float32", "bf16": False}),
    "bf16": Launched(*_NO_MASTER, {"dtype": "bfloat16", "bf16": True}),
    "bf16_fp32_gradients": Launched(*_WIDE, {"dtype": "float32", "bf16": True}),
}

#: By the names of `hetopt.schema.targets` and of exporters, and by precision.
LAUNCHED: Mapping[str, Mapping[str, Launched]] = MappingProxyType(
    {
        "executor": {
            "fp32": Launched(*_SINGLE, {}),
            "fp16_mixed": Launched(*_NARROW, {}),
            "bf16_mixed": Launched(*_NARROW, {}),
            "bf16_fp32_gradients": Launched(*_WIDE, {}),
        },
        "megatron": _MEGATRON,
        "megatron_bridge": {
            kind: row._replace(words=_of_bridge(_RECIPES[kind], wide=row.reduced == 4))
            for kind, row in _MEGATRON.items()
        },
        "flagscale": _MEGATRON,
        "deepspeed": {
            "fp32": Launched(*_SINGLE, _deepspeed_words("fp32", "fp32")),
            "fp16_mixed": Launched(*_NARROW, _deepspeed_words("fp16", "fp16")),
            "bf16_mixed": Launched(*_NARROW, _deepspeed_words("bf16", "bf16")),
            "bf16_fp32_gradients": Launched(*_WIDE, _deepspeed_words("bf16", "fp32")),
        },
        "torchtitan": {"bf16_fp32_gradients": Launched(*_WIDE, {})},
        "transformers": _TRANSFORMERS,
        "accelerate": _TRANSFORMERS,
        "llamafactory": {
            "fp32": Launched(*_SINGLE, {"bf16": False}),
            "bf16_fp32_gradients": Launched(*_WIDE, {"bf16": True}),
        },
    }
)

#: Precisions that differ by wider gradients alone.
_WIDER = {"bf16_mixed": "bf16_fp32_gradients"}


def launched_precision(target: str, precision: str | None) -> str | None:
    """Return the precision that a program runs where it is asked for another.

    It is the one that was asked for, or the same with wider gradients, which are
    weighed and sent then; it stays as it is where the table has neither.
    """
    rows, wider = LAUNCHED.get(target), _WIDER.get(str(precision))
    if rows is None or precision in rows or wider not in rows:
        return precision
    return wider


def words(exporter: str, precision: str | None) -> Fields:
    """Return what an exporter's program is told of a precision, by its own names.

    Where the instance counts bytes alone, that is 16 bits of the kind bf16.
    """
    rows = LAUNCHED[exporter]
    asked = launched_precision(exporter, precision or "bf16_mixed")
    return rows[str(asked)].words
