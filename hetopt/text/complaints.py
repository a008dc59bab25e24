"""A complaint says what is wrong with a file: where, found, expected, the remedy.

The records' own JSON schema says what each field expects, so that a message and the
check that it speaks of cannot drift apart.
"""

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import InstanceError, cut, escaped
from .documents import Document
from .parsing import without_collection

MOST_LINES = 10
Loc = tuple[int | str, ...]
R = TypeVar("R", bound=BaseModel)


class Guide(NamedTuple):
    """The guide has what messages about a kind of file say beside its schema.

    `place` says where its fields are described; `hints`, of names that no field or
    value has, what to say in place of the nearest one.
    """

    place: str
    hints: Mapping[str, str]

    def hint(self, name: object) -> str | None:
        """Return what to say of a name, however written; None if unknown."""
        return self.hints.get(str(name).strip().lower().replace("-", "_"))


NO_GUIDE = Guide("", {})


def validated(
    record: type[R],
    tree: object,
    where: str,
    at: Loc = (),
    *,
    file: str | Path | None = None,
    guide: Guide = NO_GUIDE,
) -> R:
    """`tree` as a record; `InstanceError` with every problem, one a line.

    `at` is the place of `tree` in its file, for the messages. `where` begins each; it
    is the name of the file, unless `file` says that; that is empty where there is none.
    `guide` is what messages say beside the record's schema.
    """
    try:
        with without_collection():
            return record.model_validate_json(json.dumps(tree))
    except ValidationError as error:
        first = next(iter(_told_of(error)))["loc"]
        raise InstanceError(
            explained(error, record, where, at, guide),
            file=where if file is None else file,
            field=path_of((*at, *first)),
        ) from None


def explained(
    error: ValidationError,
    record: type[BaseModel],
    where: str,
    at: Loc = (),
    guide: Guide = NO_GUIDE,
) -> str:
    """The lines of a message for `error`, each beginning with the file `where`."""
    schema = record.model_json_schema()
    lines = []
    problems = _told_of(error)
    for problem in problems:
        loc = (*at, *problem["loc"])
        place = f"{where}: {path}: " if (path := path_of(loc)) else f"{where}: "
        lines.append(place + _complaint(schema, problem, guide))
    if (more := len(lines) - MOST_LINES) > 0:
        lines[MOST_LINES:] = [f"{where}: and {more} more"]
    if guide.place and any(one["type"] in _OF_FIELDS for one in problems):
        lines.append(f"{where}: {guide.place}")
    return "\n".join(lines)


_OF_FIELDS = ("extra_forbidden", "missing")  # wrong by name, not by value


def _told_of(error: ValidationError) -> list[Any]:
    """The problems that do not follow from another one."""
    problems = error.errors(include_url=False)
    return [one for one in problems if not _follows_from_another(one, problems)]


def path_of(loc: Loc) -> str:
    """A place as it is written, `cluster.nodes[2].count`; long keys are cut."""
    text = ""
    for part in loc:
        if part == "[key]":
            continue
        text += f"[{part}]" if isinstance(part, int) else f".{cut(escaped(part))}"
    return text.removeprefix(".")


def shown(value: object) -> str:
    """A value as its file shows it, shortened; lists and objects by their size."""
    if isinstance(value, dict):
        return f"an object of {len(value)} field{'s' if len(value) != 1 else ''}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return cut(escaped(json.dumps(value, ensure_ascii=False)))


def listed(names: Iterable[str]) -> str:
    """Names that a file has, each cut and the first ten of them; `none` without any."""
    cuts = [cut(escaped(name)) for name in names]
    more = [f"and {len(cuts) - MOST_LINES} more"] if len(cuts) > MOST_LINES else []
    return ", ".join([*cuts[:MOST_LINES], *more]) or "none"


def unknown_name(what: str, name: object, known: list[str]) -> str:
    """`found ..., expected ...; remedy` for a name that is none of `known`."""
    return f"found {shown(name)}, expected {what}; {nearest(name, known)}"


def nearest(name: object, known: list[str]) -> str:
    """The nearest of the known names, or all of them where none is near."""
    near = get_close_matches(cut(str(name), 300), known, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"known are {', '.join(sorted(known))}"


def _follows_from_another(problem: Any, problems: list[Any]) -> bool:
    """Pydantic counts only the valid items of a list: too short, though it is not."""
    loc = problem["loc"]
    return problem["type"] == "too_short" and any(
        other["loc"][: len(loc)] == loc and len(other["loc"]) > len(loc)
        for other in problems
    )


# --- one problem -------------------------------------------------------------------


def _complaint(schema: Document, problem: Any, guide: Guide) -> str:
    kind, loc, value = problem["type"], problem["loc"], problem["input"]
    if kind == "value_error":
        return str(problem["ctx"]["error"])
    if kind == "extra_forbidden":
        known = sorted(_node(schema, loc[:-1]).get("properties", {}))
        return f"unknown field; {guide.hint(loc[-1]) or nearest(loc[-1], known)}"
    node = _node(schema, loc)
    if not node:
        return f"found {shown(value)}: {problem['msg']}"
    expected = _broken_rule(problem, node) or _expectation_of(schema, node)
    if kind == "missing":
        return f"missing; expected {expected}; add it"
    hint = guide.hint(value) if kind == "literal_error" else None
    remedy = hint or _remedy(schema, kind, value, node)
    return f"found {shown(value)}, expected {expected}; {remedy}"


def _broken_rule(problem: Any, node: Document) -> str | None:
    """Return what a text breaks of its length and its form; None for other problems."""
    match problem["type"]:
        case "string_pattern_mismatch":
            form = node.get("description", problem["ctx"]["pattern"])
            return f"text of the form {form}"
        case "string_too_long" if "pattern" in node:
            return f"text of at most {problem['ctx']['max_length']} characters"
    return None


def _remedy(schema: dict[str, object], kind: str, value: object, node: Document) -> str:
    if value is None:
        return "give a value, or leave the field out if it has a default"
    wants = {_follow(schema, branch).get("type") for branch in _branches(node)}
    if kind == "literal_error":
        names = [str(v) for b in _branches(node) for v in b.get("enum", [])]
        return nearest(value, names) if isinstance(value, str) else "use one of them"
    if isinstance(value, str) and wants & {"integer", "number"} and "string" in wants:
        return "write a plain number without quotes, or one with a unit"
    if isinstance(value, str) and wants & {"integer", "number"}:
        return "write a plain number without quotes or unit"
    if isinstance(value, str) and "boolean" in wants:
        return "write true or false without quotes"
    if isinstance(value, int | float) and wants == {"string"}:
        return "put it in quotes"
    if isinstance(value, float) and "integer" in wants:
        return "write a whole number"
    if "array" in wants and not isinstance(value, list):
        return "write a list: [...]"
    if "object" in wants and not isinstance(value, dict):
        return "write its fields: {...}"
    return "give such a value"


# --- what the schema expects -----------------------------------------------------


def expectation(schema: dict[str, object], node: dict[str, object]) -> str:
    """Return what a part of a JSON schema expects, in words."""
    return _expectation_of(schema, _follow(schema, node))


def _node(schema: Document, loc: Loc) -> Document:
    """The part of a JSON schema that a place is checked against; {} if there is none"""
    node = schema
    for part in loc:
        if part == "[key]":
            return {"type": "string", **node.get("propertyNames", {})}
        for branch in _branches(_follow(schema, node)):
            found = _child(_follow(schema, branch), part)
            if found:
                node = found
                break
        else:
            return {}
    return _follow(schema, node)


def _child(node: Document, part: int | str) -> dict[str, object]:
    if isinstance(part, int):
        prefix = node.get("prefixItems", [])
        found = prefix[part] if part < len(prefix) else node.get("items")
    else:
        found = node.get("properties", {}).get(part) or node.get("additionalProperties")
    return found if isinstance(found, dict) else {}


def _branches(node: Document) -> list[Document]:
    """The alternatives of a part of a schema, those within alternatives too."""
    if "anyOf" not in node:
        return [node]
    return [one for branch in node["anyOf"] for one in _branches(branch)]


def _follow(schema: Document, node: Document) -> Document:
    if reference := node.get("$ref"):
        return dict(schema["$defs"][reference.rpartition("/")[2]])
    return node


def _expectation_of(schema: dict[str, object], node: dict[str, object]) -> str:
    texts = [_one(_follow(schema, branch)) for branch in _branches(node)]
    return " or ".join(texts)


def _one(node: Document) -> str:
    if "const" in node:
        return json.dumps(node["const"])
    if "enum" in node:
        return "one of " + ", ".join(json.dumps(value) for value in node["enum"])
    match node.get("type"):
        case "null":
            return "null"
        case "boolean":
            return "true or false"
        case "integer":
            return "a whole number" + _range(node)
        case "number":
            return "a number" + _range(node)
        case "string":
            return _text(node)
        case "array":
            return "a list" + _items(node)
        case "object" if "properties" in node:
            names = node.get("required") or node["properties"]
            return f"an object with {', '.join(names)}"
    return "an object"


_LIMITS = {
    **{"minimum": "at least", "exclusiveMinimum": "above"},
    **{"maximum": "at most", "exclusiveMaximum": "below"},
}


def _range(node: Document) -> str:
    if "minimum" in node and "maximum" in node:
        return f" from {_plain(node['minimum'])} to {_plain(node['maximum'])}"
    there = [(word, node[key]) for key, word in _LIMITS.items() if key in node]
    return " and".join(f" {word} {_plain(limit)}" for word, limit in there)


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _text(node: Document) -> str:
    if "pattern" in node and "description" in node:
        return f"text of the form {node['description']}"
    if "examples" in node:
        return f"one with a unit ({', '.join(node['examples'])})"
    if "maxLength" in node and "minLength" in node:
        return f"text of {node['minLength']} to {node['maxLength']} characters"
    if "maxLength" in node:
        return f"text of at most {node['maxLength']} characters"
    return "text"


def _items(node: dict[str, object]) -> str:
    low, high = node.get("minItems"), node.get("maxItems")
    if low is not None and low == high:
        return f" of {low}"
    if low is not None and high is not None:
        return f" of {low} to {high}"
    return f" of at least {low}" if low is not None else ""
