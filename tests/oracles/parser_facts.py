"""What a trainer's own parser says of the names of our table, kinds and defaults.

`megatron_options.json` holds names, kinds, defaults and choices of
`megatron/training/arguments.py`, a value for each release where they differ;
`derived` are the rules of `TransformerConfig` for what is not given.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from hetopt.trainers.table import (
    NUMBER,
    OFF,
    ON,
    WHOLE,
    Choice,
    Row,
    Table,
    never,
    text_of,
)

#: By name: the kind of its values (`flag` for none), its default, its choices if any.
Options = Mapping[str, list[Any]]
_FACTS = json.loads(
    Path(__file__).with_name("megatron_options.json").read_text("utf-8")
)
RELEASES: list[str] = _FACTS["releases"]
DERIVED: dict[str, str] = _FACTS["derived"]
#: Names of forks and wrappers, and of releases before all of these.
OTHERS = frozenset(
    {
        *("activation", "gated-linear-unit", "geglu", "deepspeed", "zero-stage"),
        *("gradient-accumulation-steps", "world-size", "data-parallel-size"),
        *("lora-rank", "tuner-type", "packing", "padding-free"),
        *("fp8-dot-product-attention", "fp8-multi-head-attention", "fp8-param"),
        *("te-fp8-format", "full-cuda-graph", "cpu-offloading", "nccl-ub"),
        *("decoder-tp-comm-overlap", "freeze-LM", "freeze-ViT", "freeze-llm"),
        *("freeze-vit", "microbatch-group-size-per-vp-stage", "swap-attention"),
        *("moe-pad-expert-input-to-cap", "moe-router-force-bias", "recompute-norm"),
        *("recompute-activation-layers-per-vp-stage", "cpu-optimizer", "mlp-type"),
        *("noop-layers", "schedules-method", "swap-optimizer", "reuse-fp32-param"),
        *("recompute-activation-function", "recompute-in-advance", "use-ascend-coc"),
        *("moe-fb-overlap", "moe-tp-extend-ep", "moe-alltoall-overlap-comm"),
    }
)


def of_release(number: int) -> Options:
    """Return the options of one release."""
    by_release = {
        name: row if isinstance(row[0], str) else row[number]
        for name, row in _FACTS["options"].items()
    }
    return {name: row for name, row in by_release.items() if row is not None}


def known_names() -> frozenset[str]:
    """Return the names that some release or relative has."""
    found = {name for n in range(len(RELEASES)) for name in of_release(n)}
    return OTHERS | found


#: Any sizes: a default that is a rule of others is computed for them twice.
_SIZES = {"hidden": 2688, "heads": 24}
_KINDS = {WHOLE: "int", NUMBER: "float", ON: "flag", OFF: "flag"}


def faults(
    table: Table,
    options: Options,
    derived: Mapping[str, str],
    others: Collection[str] = (),
) -> Iterator[str]:
    """Yield where a table and a parser disagree; `others` are names of relatives."""
    written: set[str] = set()
    for entry in table.entries:
        if isinstance(entry, Row):
            yield from _of_row(entry, options, derived)
            written |= {entry.name, *entry.adds} if entry.when is not never else set()
        elif isinstance(entry, Choice):
            yield from _of_choice(entry, options)
            values = (*entry.values.values(), *entry.adds.values())
            written |= {name for names in values for name in names}
        else:
            written |= {*entry.names}
    known = {*options, *others}
    names = {*table.names, *(one.name for one in table.unread)}
    yield from (f"{x}: the parser has no such name" for x in sorted(names - known))
    yield from (f"{x}: written, another's" for x in sorted(written - options.keys()))


def _of_row(row: Row, options: Options, derived: Mapping[str, str]) -> Iterator[str]:
    if row.name not in options:
        return
    kind, default, *choices = options[row.name]
    wanted = _KINDS.get(row.kind)
    if wanted is not None and kind != wanted:
        yield f"{row.name}: a {kind}, and {wanted} in the table"
    if choices and row.kind.values is not None:
        words = {row.kind.write(value) for value in row.kind.values}
        yield from (f"{row.name}: no choice {x}" for x in words - {*choices[0]})
    if row.default is None:
        return
    if callable(row.default) or row.needs:
        rule = derived.get(row.name, "None")
        if (row.usual(_SIZES) or None) != eval(rule, {}, dict(_SIZES)):
            yield f"{row.name}: by default {rule}"
    elif kind == "flag":
        if row.default is not (row.kind is OFF):
            yield f"{row.name}: a flag that is on by default"
    elif row.kind.write(row.default) != default and (row.default, default) != (0, None):
        yield f"{row.name}: by default {default}, {row.default} in the table"


def _of_choice(choice: Choice, options: Options) -> Iterator[str]:
    for value, names in choice.values.items():
        for name, word in names.items():
            *_, choices = *options.get(name, ()), None
            if isinstance(choices, list) and text_of(word) not in choices:
                yield f"{name}: no choice {word}"
        given = {n: options[n][1] for n in names if n in options and options[n][1]}
        if names and all(given.get(name) == word for name, word in names.items()):
            yield f"{choice.field}: {value} by default"
