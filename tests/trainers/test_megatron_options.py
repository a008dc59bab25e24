"""Megatron-LM's table says what the parsers of its releases say.

`megatron_options.json` holds names, kinds, defaults and choices of
`megatron/training/arguments.py`, a value for each release where they differ;
`derived` are the rules of `TransformerConfig` for what is not given.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from parser_facts import Options, faults

from hetopt.trainers.megatron import OLDER, TABLE
from hetopt.trainers.table import Entry, Row, Table, Unread

_FACTS = json.loads(Path(__file__).with_name("megatron_options.json").read_text())
RELEASES: list[str] = _FACTS["releases"]
DERIVED: dict[str, str] = _FACTS["derived"]
#: Names of forks and wrappers, and of releases before all of these.
OTHERS = frozenset(
    {
        *("activation", "gated-linear-unit", "geglu", "deepspeed", "zero-stage"),
        *("gradient-accumulation-steps", "world-size", "data-parallel-size"),
        *("lora-rank", "tuner-type", "rlhf-type", "advantage-estimator"),
        *("rollout-batch-size", "rollout-num-gpus", "packing", "padding-free"),
        *("fp8-dot-product-attention", "fp8-multi-head-attention", "fp8-param"),
        *("te-fp8-format", "full-cuda-graph", "cpu-offloading", "nccl-ub"),
        *("decoder-tp-comm-overlap", "freeze-LM", "freeze-ViT", "freeze-llm"),
        *("freeze-vit", "microbatch-group-size-per-vp-stage", "swap-attention"),
        *("moe-pad-expert-input-to-cap", "moe-router-force-bias", "recompute-norm"),
        "recompute-activation-layers-per-vp-stage",
    }
)


def of_release(number: int) -> Options:
    """Return the options of one release."""
    by_release = {
        name: row if isinstance(row[0], str) else row[number]
        for name, row in _FACTS["options"].items()
    }
    return {name: row for name, row in by_release.items() if row is not None}


@pytest.mark.parametrize("number", range(len(RELEASES)), ids=RELEASES)
def test_names_and_defaults_are_the_parsers(number: int) -> None:
    newest = number == len(RELEASES) - 1
    others = OTHERS | {name for n in range(len(RELEASES)) for name in of_release(n)}
    options = of_release(number)
    found = list(faults(TABLE, options, DERIVED, others))
    if not newest:  # what is written may be younger than a release
        known = of_release(-1)
        found = [x for x in found if x.partition(":")[0] not in known.keys() - options]
    # Muon is core 0.16's.
    assert found == (["optimizer: no choice muon"] if number == 0 else [])
    assert not OTHERS & options.keys()


def test_rules_and_older_names_are_the_parsers() -> None:
    known = {*OTHERS, *(name for n in range(len(RELEASES)) for name in of_release(n))}
    for rule in TABLE.rules:
        for condition in (*rule.given, *rule.excludes, *rule.needs):
            assert condition.replace(">", "=").partition("=")[0] in known
    assert {name for entry in OLDER.values() for name in entry.names} <= known


def _changed(flag: str, **changes: object) -> Table:
    def entry(one: Entry) -> Entry:
        is_it = isinstance(one, Row) and one.name == flag
        return replace(one, **changes) if is_it else one  # type: ignore[type-var]

    return replace(TABLE, entries=tuple(map(entry, TABLE.entries)))


@pytest.mark.parametrize(
    "table",
    [
        _changed("moe-ffn-hidden-size", name="moe-ffn-hidden"),
        _changed("context-parallel-size", default=2),
        _changed("num-query-groups", default=1),
        _changed("kv-channels", default=lambda _: 128),
        _changed("untie-embeddings-and-output-weights", default=False),
        _changed("norm-epsilon", name="layernorm-epsilon"),
        _changed("optimizer", default="sgd"),
        replace(TABLE, unread=(*TABLE.unread, Unread("overlap-grad-reduction"))),
    ],
    ids=lambda _: "",
)
def test_a_wrong_name_or_default_is_found(table: Table) -> None:
    others = OTHERS | {name for n in range(len(RELEASES)) for name in of_release(n)}
    assert list(faults(table, of_release(-1), DERIVED, others))
