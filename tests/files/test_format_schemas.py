"""JSON Schemas of our files: what we read keeps them, what breaks them we refuse."""

import copy
import json
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from json_schema import faults
from places import INSTANCES

from hetopt import files, problems
from hetopt.errors import HetoptError
from hetopt.files import schemas
from hetopt.text.parsing import read_tree


@cache
def our_schemas() -> dict[str, Any]:
    """Return the schema of each of our documents by its name."""
    return {row["name"]: row["schema"] for row in schemas.schemas()}


SHIPPED = sorted(INSTANCES.glob("*/*.yaml"))
PLANS = sorted(INSTANCES.glob("*/*.plan.json"))


def broken(tree: Any, name: str) -> list[str]:
    return faults(tree, our_schemas()[name], our_schemas()[name])


def format_of(tree: dict[str, Any]) -> str:
    name = tree.get("problem", "instance")
    return name if name in our_schemas() else "instance"


def test_files_of_the_library_keep_their_schema() -> None:
    assert SHIPPED
    for path in SHIPPED:
        tree = read_tree(path)
        assert broken(tree, format_of(tree)) == [], path


def test_plan_files_of_the_library_keep_their_schema() -> None:
    assert PLANS
    for path in PLANS:
        assert broken(read_tree(path), "plan") == []


def changes(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of values in a tree, lists by their first."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield (*at, key)
            yield from changes(value, (*at, key))
    elif isinstance(tree, list) and tree:
        yield from changes(tree[0], (*at, 0))


def changed(tree: Any, at: tuple[Any, ...], value: Any) -> Any:
    """The tree with another value at a place, None to leave it out."""
    made = copy.deepcopy(tree)
    inner = made
    for key in at[:-1]:
        inner = inner[key]
    if value is None:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return made


def replaced() -> Iterator[Any]:
    """Instances, what stands at their places instead, and which: each, or each other.

    All pairs, and all places, are slow.
    """
    usual = {
        "tiny/two-nodes": (None, "long", "record"),
        "espresso/llama-7b": ("list", "number"),
    }
    values = {"list": [[]], "number": -1, "long": "?" * 3000, "record": {"x": {}}}
    for name, kinds in usual.items():
        for kind in (None, *values):
            value = None if kind is None else values[kind]
            if kind in kinds:
                yield pytest.param(name, value, 2, id=f"{name}-{kind}-some")
            marks = pytest.mark.slow
            yield pytest.param(name, value, 1, marks=marks, id=f"{name}-{kind}")


@pytest.mark.parametrize(("name", "value", "step"), list(replaced()))
def test_what_breaks_a_schema_is_refused_by_the_reader(
    name: str, value: Any, step: int, tmp_path: Path
) -> None:
    tree = read_tree(INSTANCES / f"{name}.yaml")
    path = tmp_path / "changed.json"
    counted = 0
    for at in islice(changes(tree), 0, None, step):
        other = changed(tree, at, value)
        if broken(other, "instance"):
            counted += 1
            path.write_text(json.dumps(other))
            with pytest.raises(HetoptError):
                files.load_instance(path)
    assert counted > 5


def test_every_problem_has_a_schema_of_its_file() -> None:
    posed = {n for n in problems.names() if problems.get(n).Data is files.Instance}
    assert set(our_schemas()) == {
        *("instance", "profile", "plan", "result", "error"),
        *set(problems.names()) - posed,
    }


def test_a_model_may_be_named_and_a_link_be_a_row() -> None:
    tree = read_tree(INSTANCES / "tiny" / "two-nodes.yaml")
    links = {"pairs": [["a", "b", 1.5], ["a", "c", 1, 20]]}
    tree["cluster"]["inter"] = links
    for model in ({"preset": "gpt2"}, {"config": "config.json", "name": "x"}):
        assert broken({**tree, "model": model}, "instance") == []
    assert broken({**tree, "model": {"preset": "gpt-9"}}, "instance")
    links["pairs"].append(["a", "b", "400Gb/s", "5us"])
    links["islands"] = [{"nodes": ["*"], "gbytes_per_s": "25GbE"}]
    assert broken(tree, "instance") == []
    for row in (["a", "b", "400G"], ["a", "b", 1, "5m"]):
        links["pairs"].append(row)
        assert broken(tree, "instance")
        links["pairs"].pop()
    links["pairs"].append(["a", "b"])
    assert broken(tree, "instance")
