"""Megatron-LM's table says what the parsers of its releases say."""

import re
from dataclasses import replace

import pytest
from parser_facts import DERIVED, OTHERS, RELEASES, faults, known_names, of_release

from hetopt.trainers.megatron import OLDER, TABLE
from hetopt.trainers.table import Entry, Row, Table, Unread


@pytest.mark.parametrize("number", range(len(RELEASES)), ids=RELEASES)
def test_names_and_defaults_are_the_parsers(number: int) -> None:
    newest = number == len(RELEASES) - 1
    others = known_names()
    options = of_release(number)
    found = list(faults(TABLE, options, DERIVED, others))
    if not newest:  # what is written may be younger than a release
        known = of_release(-1)
        found = [x for x in found if x.partition(":")[0] not in known.keys() - options]
    # Muon is core 0.16's.
    assert found == (["optimizer: no choice muon"] if number == 0 else [])
    assert not OTHERS & options.keys()


def test_rules_and_older_names_are_the_parsers() -> None:
    known = known_names()
    for rule in TABLE.rules:
        for condition in (*rule.given, *rule.excludes, *rule.needs):
            assert re.split("[>=~]", condition)[0] in known
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
    others = known_names()
    assert list(faults(table, of_release(-1), DERIVED, others))
