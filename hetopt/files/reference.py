"""The module says what every field means: its type, unit, default, and source.

Types, limits and defaults are read off the records that check a file, so that they
cannot drift apart from it; `fields.yaml` says the rest, beside what a record's own
schema describes.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ..schema import Instance
from ..text import complaints
from ..text.documents import Document
from ..text.parsing import read_tree

Row = Document
Schema = Document

_FILE = Path(__file__).with_name("fields.yaml")
_LISTED, _NAMED = "[]", ".NAME"
# The ends of names, longest first where one is another's end.
_UNITS = {
    "usd_per_hour": "USD an hour",
    "gbytes_per_s": "10^9 bytes/s",
    "tflops": "TFLOP/s",
    "watts": "W",
    "gib": "GiB",
    "mib": "MiB",
    "us": "µs",
    "usd": "USD",
    "s": "s",
}


def rows() -> list[Row]:
    """A row a field, objects before what is in them, in the order of the records.

    Each has `name` (`cluster.nodes[].count`: `[]` is each of a list, `NAME` a name of
    your own), `description`, `record` (who checks it), `expects`, `unit`, `required`,
    `default` and `source`, where the value is found; absent is None.
    """
    schema = Instance.model_json_schema()
    return list(_fields(schema, schema, Instance.__name__, ""))


@cache
def told() -> dict[str, dict[str, dict[str, str]]]:
    """Return what `fields.yaml` says, by record and field."""
    return read_tree(_FILE)


def _fields(schema: Schema, node: Schema, record: str, at: str) -> Iterator[Row]:
    required = node.get("required", ())
    for name, field in node["properties"].items():
        said = told().get(record, {}).get(name, {})
        inner = list(_inner(field))
        units = (u for end, u in _UNITS.items() if f"_{name}".endswith(f"_{end}"))
        yield {
            "name": at + name,
            "description": said.get("is", field.get("description", "")),
            "record": record,
            "expects": _expects(schema, field, inner),
            "unit": said.get("unit", next(units, None)),
            "required": name in required,
            "default": None if inner else field.get("default"),
            "source": said.get("from"),
        }
        for suffix, kind in inner:
            yield from _fields(
                schema, schema["$defs"][kind], kind, f"{at}{name}{suffix}."
            )


def _inner(node: Schema, suffix: str = "") -> Iterator[tuple[str, str]]:
    """Yield how a field holds records, as `[]`, and of which kind."""
    if reference := node.get("$ref"):
        yield suffix, reference.rpartition("/")[2]
    for branch in node.get("anyOf", ()):
        yield from _inner(branch, suffix)
    for word, mark in (("items", _LISTED), ("additionalProperties", _NAMED)):
        if isinstance(node.get(word), dict):
            yield from _inner(node[word], suffix + mark)


def _expects(schema: Schema, field: Schema, inner: list[tuple[str, str]]) -> str:
    if not inner:
        return complaints.expectation(schema, field)
    suffix = inner[0][0]
    return {"": "an object", _LISTED: "a list of objects", _NAMED: "objects by name"}[
        suffix
    ]
