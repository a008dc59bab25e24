"""Megatron-LM's options: `options.toml`, and what of them needs functions.

Flags are those of `megatron/training/arguments.py` and of its configuration classes
(core_v0.13.0 to 0.20.0), and older ones that files still have. Data, tokenizer, rates
of the optimiser and checkpoints are the user's. Windows and sinks are core 0.15's, Muon
core 0.16's. Rules are those of `validate_args` and of `TransformerConfig`.
"""

import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

from ...text.documents import Fields as Values
from ..table import NUMBER, OFF, ON, TEXT, Choice, Entry, Kind, Row, table
from .stages import EACH, STAGES, STAGES_BY_LAYERS

# --- kinds of its own ----------------------------------------------------------------


def pattern(bits: list[int]) -> str:
    """Return a list of layers as Megatron reads one, `([0]*3+[1]*29)`, `([1,0]*12)`."""
    for period in range(2, len(bits) // 2 + 1):
        times, rest = divmod(len(bits), period)
        if not rest and bits[:period] * times == bits and len(set(bits)) > 1:
            return f"([{','.join(map(str, bits[:period]))}]*{times})"
    runs = ((bit, len(list(run))) for bit, run in groupby(bits))
    return "(" + "+".join(f"[{bit}]*{count}" for bit, count in runs) + ")"


def bits_of(text: str) -> list[int] | None:
    """Return the layers of a pattern; None for `1`, every layer."""
    found: list[int] = []
    for items, times in re.findall(r"\[([01, ]{1,9999})\](?:\*([0-9]{1,4}))?", text):
        found += [int(bit) for bit in re.findall("[01]", items)] * int(times or 1)
    return found or None


def _window(text: str) -> int | None:
    """Megatron counts the tokens before a token, the instance this one, too."""
    found = re.fullmatch(r"\(?\[?(-?[0-9]{1,9}),? ?-?[0-9]{1,9}\]?\)?", text)
    return int(found[1]) + 1 if found else None


#: Of a layer, that are computed again by name.
MODULES = (
    *("core_attn", "layernorm", "mla_up_proj"),
    *("mlp", "moe", "moe_act", "shared_experts"),
)
BITS = Kind("a list of layers", bits_of, pattern)
WINDOW = Kind("two numbers of tokens", _window, lambda tokens: f"{tokens - 1},0")
NAMED = Kind(
    f"some of {', '.join(MODULES)}",
    lambda text: tuple(MODULES[MODULES.index(x)] for x in re.findall(r"[\w.-]+", text)),
    list,
)
SCALE = Kind("a whole number", float, int)

# --- the table -----------------------------------------------------------------------

SHARDED = "data-parallel-sharding-strategy"
FSDP = ("use-megatron-fsdp", "use-custom-fsdp")


_LLAMA_3 = (1.0, 4.0, 8192)  # what it has of rope scaling besides the factor


def _fraction(field: str, what: str) -> Callable[[Values], str | None]:
    """Return the refusal of fractions, for which it has no word."""
    text = f"a {what} that is no whole number, "
    return lambda f: None if f[field] == int(f[field]) else f"{text}{f[field]}"


def _too_short(fields: Values) -> str | None:
    longest, length = fields["longest"], fields.get("seq", 0)
    if longest >= length:
        return None
    return f"learned positions of {longest} tokens on sequences of {length}"


def _like_llama_3(fields: Values) -> str | None:
    is_own = fields["rope_llama3"][1:] == _LLAMA_3
    return None if is_own else "a rope scaling other than that of Llama 3.1"


_KINDS = {
    **{"number": NUMBER, "text": TEXT, "on": ON, "off": OFF, "window": WINDOW},
    **{"layers": BITS, "modules": NAMED},
}
#: Rows whose values functions say.
_OWN = (
    Row("max-position-embeddings", "longest", refuses=_too_short),
    Row(
        "num-query-groups",
        "kv_heads",
        default=lambda fields: fields["heads"],
        adds={"group-query-attention": True},
        needs="group-query-attention",
    ),
    Row("kv-channels", "head_dim", default=lambda of: of["hidden"] // of["heads"]),
    Row(
        "vocab-size",
        "vocabulary",
        adds={"make-vocab-size-divisible-by": 1},
        when=lambda fields: (
            bool(fields["vocabulary"]) and fields["vocabulary"] % fields["tp"] == 0
        ),
    ),
    Row("rotary-base", "rope_base", SCALE, refuses=_fraction("rope_base", "rope base")),
    Row(
        "rotary-seq-len-interpolation-factor",
        "rope_linear",
        SCALE,
        refuses=_fraction("rope_linear", "rope scaling"),
    ),
    Row(
        "rope-scaling-factor",
        "rope_llama3",
        Kind("a number", lambda text: (float(text), *_LLAMA_3), lambda of: of[0]),
        refuses=_like_llama_3,
        adds={"use-rope-scaling": True},
        needs="use-rope-scaling",
    ),
)
TABLE = table(
    Path(__file__).with_name("options.toml"),
    _KINDS,
    {"stages": STAGES, **{row.field: row for row in _OWN}},
)
#: By a flag that only some files have: what says a field there.
OLDER: dict[str, Entry] = {
    "deepspeed": Choice("zero", {n: {"zero-stage": n} for n in range(4)}),
    "checkpoint-activations": Choice(
        "recompute", {"none": {}, "full": {"checkpoint-activations": True}}
    ),
    EACH: STAGES_BY_LAYERS,
}
