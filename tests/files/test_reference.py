"""The fields of an instance: each is described, and messages lead there.

What a file asks for and the cost model has not is said so, not met with a near name.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from places import INSTANCES

from hetopt import files
from hetopt.errors import InstanceError
from hetopt.files import guide, reference
from hetopt.report.listing import page
from hetopt.text.parsing import read_tree

SMALL = read_tree(INSTANCES / "tiny" / "two-nodes.yaml")


@cache
def rows() -> dict[str, Any]:
    """Return the row of every field by its name."""
    return {row["name"]: row for row in reference.rows()}


def refused(tree: Any, tmp_path: Path) -> str:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(tree))
    with pytest.raises(InstanceError) as caught:
        files.load_instance(file)
    return str(caught.value)


def changed(*at: str, value: Any) -> Any:
    """The small instance with another value at a place."""
    made = json.loads(json.dumps(SMALL))
    inner = made
    for name in at[:-1]:
        inner = inner.setdefault(name, {})
    inner[at[-1]] = value
    return made


# --- the reference ---------------------------------------------------------------


def test_every_field_is_described() -> None:
    assert [name for name, row in rows().items() if not row["description"]] == []


def test_nothing_is_described_that_there_is_not() -> None:
    there = {(row["record"], row["name"].rpartition(".")[2]) for row in rows().values()}
    told = {(kind, name) for kind, group in reference.told().items() for name in group}
    assert told - there == set()


@pytest.mark.parametrize("name", files.instance_names())
def test_every_field_of_the_library_is_in_the_reference(name: str) -> None:
    tree = read_tree(files.path_of_known(name))

    def names(value: Any, at: str) -> set[str]:
        if isinstance(value, list):
            return set().union(*(names(one, f"{at}[]") for one in value[:3]))
        if not isinstance(value, dict):
            return set()
        found: set[str] = set()
        for key, inner in value.items():
            own = f"{at}.NAME" if at == "cluster.gpus" else f"{at}.{key}".lstrip(".")
            found |= {own} if own in rows() else {own} - {f"{at}.NAME"}
            found |= names(inner, own)
        return found

    special = {"model.preset", "model.config", "schema"}
    assert names(tree, "") - set(rows()) - special == set()


def test_the_page_is_what_the_command_writes() -> None:
    shipped = (INSTANCES / "REFERENCE.md").read_text(encoding="utf-8")
    again = "run `hetopt list fields --markdown > instances/REFERENCE.md`"
    assert page("fields", reference.rows()) == shipped, again
    told = typed("list", "fields", "--markdown")
    assert told.stdout == shipped


# --- messages --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("qlora", 8, "adapters on frozen weights are workload.costs.updates.lora"),
        ("fsdp", True, "full sharding is costs.updates.zero 3"),
        ("context-parallel-size", 2, "workload.costs.compute.context_parallel"),
        ("expert-parallel-size", 2, "workload.costs.compute.expert_parallel"),
        ("FP8", True, "products in such a precision are"),
        ("gradient_checkpointing", True, "say it as costs.compute.recompute"),
    ],
)
@pytest.mark.parametrize("place", ["model", "workload", "costs"])
def test_what_is_not_modelled_is_said_so(
    name: str, value: Any, said: str, place: str, tmp_path: Path
) -> None:
    at = ("workload", "costs", name) if place == "costs" else (place, name)
    message = refused(changed(*at, value=value), tmp_path)
    assert f"{'.'.join(at)}: unknown field; " in message
    assert said in message
    assert "did you mean" not in message


def test_a_value_that_is_not_modelled_is_said_so(tmp_path: Path) -> None:
    message = refused(changed("workload", "costs", "precision", value="fp8"), tmp_path)
    assert 'found "fp8", expected one of' in message
    assert "products in such a precision are" in message


def test_a_message_on_fields_leads_to_the_reference(tmp_path: Path) -> None:
    for tree in (changed("model", "hiden", value=1), {**SMALL, "model": {"name": "x"}}):
        assert guide().place in refused(tree, tmp_path).splitlines()[-1]
    other = refused(changed("model", "hidden", value=-1), tmp_path)
    assert guide().place not in other
