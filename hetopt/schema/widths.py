"""The table of the precisions that each program runs, and how it is told.

A row is of one program and one precision of ours (`costs.precision`), whose bytes of a
trained parameter `PRECISIONS` has, and holds the program's own words for it. Exporters
write the words: a test holds them, and the defaults of each program, to those bytes.
The page of it is `hetopt/formats/README.md`.

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

from ..text.documents import Fields

Words = Mapping[str, object]


def _deepspeed(kind: str, gradients: str) -> Words:
    return {
        "bf16": {"enabled": kind == "bf16"},
        "fp16": {"enabled": kind == "fp16"},
        "data_types": {"grad_accum_dtype": gradients},
        "communication_data_type": gradients,
    }


#: The precisions of Megatron-LM's table, which has the words.
_MEGATRON: Mapping[str, Words] = {
    name: {} for name in ("fp32", "fp16_mixed", "bf16_mixed", "bf16_fp32_gradients")
}

#: Weights of `dtype` are what is trained; in `bf16` they are copied for each product.
_TRANSFORMERS: Mapping[str, Words] = {
    "fp32": {"dtype": "float32", "bf16": False},
    "bf16": {"dtype": "bfloat16", "bf16": True},
    "bf16_fp32_gradients": {"dtype": "float32", "bf16": True},
}

#: By the names of `hetopt.schema.targets` and of exporters, and by precision.
LAUNCHED: Mapping[str, Mapping[str, Words]] = MappingProxyType(
    {
        "executor": _MEGATRON,
        "megatron": _MEGATRON,
        # A recipe, and a field of it; without one all is fp32.
        "megatron_bridge": {
            "fp32": {"mixed_precision": None},
            "fp16_mixed": {
                "mixed_precision": "fp16_mixed",
                "grad_reduce_in_fp32": False,
            },
            "bf16_mixed": {
                "mixed_precision": "bf16_mixed",
                "grad_reduce_in_fp32": False,
            },
            "bf16_fp32_gradients": {
                "mixed_precision": "bf16_mixed",
                "grad_reduce_in_fp32": True,
            },
        },
        "flagscale": _MEGATRON,
        "deepspeed": {
            "fp32": _deepspeed("fp32", "fp32"),
            "fp16_mixed": _deepspeed("fp16", "fp16"),
            "bf16_mixed": _deepspeed("bf16", "bf16"),
            "bf16_fp32_gradients": _deepspeed("bf16", "fp32"),
        },
        "torchtitan": {"bf16_fp32_gradients": {}},
        "transformers": _TRANSFORMERS,
        "accelerate": _TRANSFORMERS,
        "llamafactory": {
            "fp32": {"bf16": False},
            "bf16_fp32_gradients": {"bf16": True},
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
    return rows[str(asked)]
