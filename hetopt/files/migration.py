"""Files of `schema: 1` rewritten as `schema: 2`, whose cost settings are in groups.

YAML keeps its order and its comments: only the settings and the number of the schema
are written anew. A file that is of `schema: 2` already is returned as it is.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.nodes import MappingNode, Node

from ..errors import InstanceError
from ..schema import GROUP_OF, GROUPS, PRESETS, group_fields, ungroup_fields
from ..text.documents import Document
from ..text.editions import GROUPED, refuse_later
from ..text.parsing import parse_tree, read_text

#: Where settings stand: of an instance, of a queue of jobs, of the data of a plan.
PLACES = (
    ("workload", "costs"),
    ("assumptions", "costs"),
    ("instance", "workload", "costs"),
    ("instance", "assumptions", "costs"),
    ("posed_by", "workload", "costs"),
)
_SCHEMA = "schema"
_DEFAULTS = {
    name: field.get_default()
    for record in GROUPS.values()
    for name, field in record.model_fields.items()
}


class _Edit(NamedTuple):
    """An edit takes the place of the text between two characters."""

    start: int
    end: int
    text: str


def migrated(path: Path, *, presets: bool = False) -> str:
    """Return the text of a file as `schema: 2` has it.

    With `presets`, settings that are those of a preset are said by its name.
    `InstanceError` where the file is none of ours.
    """
    text, is_json = read_text(path), path.suffix == ".json"
    tree = parse_tree(text, str(path), is_json=is_json)
    refuse_later(tree, path)
    if not {"model", "problem", "instance", "plan"} & {*tree}:
        raise InstanceError.at(
            path,
            None,
            "found neither model, problem nor plan, expected an instance, a problem "
            "file or a plan file; name one",
        )
    if tree.get(_SCHEMA) == GROUPED:
        return text
    made = _with_settings(tree, presets=presets)
    if is_json:
        return json.dumps(made, indent=1, ensure_ascii=False) + "\n"
    edited = _apply_edits(text, _edits(text, tree, presets=presets))
    if parse_tree(edited, str(path), is_json=False) != made:
        raise InstanceError.at(
            path,
            None,
            "found settings that YAML shares between places or merges, expected each "
            "where it stands; write them out",
        )
    return edited


def _settings(costs: Mapping[str, object], *, presets: bool) -> str | dict[str, object]:
    """Return settings in groups, or the name of the preset that they are."""
    whole = _DEFAULTS | dict(costs)
    for name, groups in PRESETS.items() if presets else ():
        if whole == _DEFAULTS | ungroup_fields(groups):
            return name
    return group_fields(costs)


# --- JSON ------------------------------------------------------------------------


def _with_settings(tree: dict[str, object], *, presets: bool) -> dict[str, object]:
    """Return a tree with its settings in groups, which says its schema."""
    made: Document = json.loads(json.dumps(tree))
    for *above, last in PLACES:
        inner: Any = made
        for part in above:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get(last), dict):
            inner[last] = _settings(inner[last], presets=presets)
    return {**made, _SCHEMA: GROUPED}


# --- YAML ------------------------------------------------------------------------


def _edits(text: str, tree: Mapping[str, object], *, presets: bool) -> Iterator[_Edit]:
    root = yaml.compose(text, yaml.SafeLoader)
    if _SCHEMA in tree:
        number = _settings_places(root, (_SCHEMA,))
        assert number is not None  # the tree has it
        start, end = number[1].start_mark.index, number[1].end_mark.index
        yield _Edit(start, end, str(GROUPED))
    else:
        end = len(text.rstrip("\n"))
        yield _Edit(end, len(text), f"\n{_SCHEMA}: {GROUPED}\n")
    for place in PLACES:
        found = _settings_places(root, place)
        if found is None:
            continue
        key, node = found
        is_here = node.start_mark.index >= key.end_mark.index  # no alias of another
        if not isinstance(node, MappingNode) or not is_here:
            continue
        costs: Any = tree
        for part in place:
            costs = costs[part]
        start = key.end_mark.index
        end = start + len(text[start : node.end_mark.index].rstrip())
        said = _settings(costs, presets=presets)
        if isinstance(said, str):
            yield _Edit(start, end, f": {said}")
        elif node.flow_style:
            yield _Edit(start, end, ": " + _flow(text, node))
        else:
            yield _Edit(start, end, ":" + _block(text[:end], node))


def _settings_places(
    node: Node | None, place: tuple[str, ...]
) -> tuple[Node, Node] | None:
    """Return the key and the value at a place of a document."""
    for key, value in node.value if isinstance(node, MappingNode) else ():
        if key.value == place[0]:
            return _settings_places(value, place[1:]) if place[1:] else (key, value)
    return None


def _parts(node: MappingNode) -> dict[str, list[tuple[Node, Node, int]]]:
    """Return by group the keys and values of its fields, with their numbers.

    What is no field is in the group without a name.
    """
    made: dict[str, list[tuple[Node, Node, int]]] = {group: [] for group in GROUPS}
    made[""] = []
    for number, (key, value) in enumerate(node.value):
        made[GROUP_OF.get(key.value, "")].append((key, value, number))
    return {group: parts for group, parts in made.items() if parts}


def _flow(text: str, node: MappingNode) -> str:
    groups = []
    for group, parts in _parts(node).items():
        fields = ", ".join(
            text[key.start_mark.index : value.end_mark.index] for key, value, _ in parts
        )
        groups.append(f"{group}: {{{fields}}}" if group else fields)
    return "{" + ", ".join(groups) + "}"


def _block(text: str, node: MappingNode) -> str:
    """Return groups a line each, and their fields below, with their comments."""
    starts = [key.start_mark.index for key, _ in node.value]
    ends = [*starts[1:], len(text)]
    indent = node.start_mark.column
    made = ""
    for group, parts in _parts(node).items():
        inner = indent + (2 if group else 0)
        made += f"\n{' ' * indent}{group}:" if group else ""
        for _, _, number in parts:
            lines = text[starts[number] : ends[number]].rstrip().split("\n")
            more = [" " * (inner - indent) + x if x.strip() else x for x in lines[1:]]
            made += "".join(f"\n{x}" for x in [" " * inner + lines[0], *more])
    return made


def _apply_edits(text: str, edits: Iterator[_Edit]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
