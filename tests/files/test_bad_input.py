"""Malformed instance, problem and plan files, each with the message it must get.

The cases are data: `tests/bad_input/*.yaml`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from disk import put
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from inputs import examples
from places import TESTS

from hetopt.errors import HetoptError
from hetopt.files import load_instance, load_plan, load_problem

FOLDER = TESTS / "bad_input"
READERS: dict[str, Callable[[Path], Any]] = {
    "instances": load_instance,
    "problems": load_problem,
    "plans": load_plan,
}
SHEETS = {
    kind: yaml.safe_load((FOLDER / f"{kind}.yaml").read_text()) for kind in READERS
}


def bases(kind: str) -> list[str]:
    """The well-formed texts that the cases of a kind start from."""
    sheet = SHEETS[kind]
    return [sheet["base"]] if "base" in sheet else list(sheet["bases"].values())


def text_and_suffix(kind: str, base: str, case: dict[str, str]) -> tuple[str, str]:
    if "text" in case:
        return case["text"], case["suffix"]
    assert case["find"] in base, "the case would leave the base as it is"
    return (
        base.replace(case["find"], case["replace"], 1),
        "yaml" if kind == "instances" else "json",
    )


@pytest.mark.parametrize("kind", READERS)
def test_a_malformed_file_gets_exactly_its_message(kind: str, tmp_path: Path) -> None:
    sheet, different = SHEETS[kind], {}
    for case in sheet["cases"]:
        base = sheet["base"] if "base" in sheet else sheet["bases"][case["base"]]
        text, suffix = text_and_suffix(kind, base, case)
        file = put(tmp_path / f"case.{suffix}", text)
        with pytest.raises(HetoptError) as caught:
            READERS[kind](file)
        found = str(caught.value).replace(str(file), "FILE")
        found = found.replace(f"{tmp_path}/", "")
        if found != case["message"]:
            different[case["case"]] = found
    assert different == {}


@pytest.mark.parametrize("kind", READERS)
def test_the_bases_of_the_cases_are_well_formed(kind: str, tmp_path: Path) -> None:
    for number, base in enumerate(bases(kind)):
        file = put(tmp_path / f"{number}.yaml", base)
        assert READERS[kind](file)


def test_a_file_of_many_problems_lists_ten_and_counts_the_rest(tmp_path: Path) -> None:
    unknown = ", ".join(f"unknown{i}: 1" for i in range(14))
    file = put(
        tmp_path / "many.yaml",
        bases("instances")[0].replace("layers: 4", f"layers: 4, {unknown}"),
    )
    with pytest.raises(HetoptError) as caught:
        load_instance(file)
    lines = str(caught.value).splitlines()
    assert len(lines) == 12
    assert lines[-2] == f"{file}: and 4 more"


# Anything that a file may hold, put where it does not belong.
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from([10**30, -(10**30), 1e308, 5e-324, "\ud800", "\x00"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of plain data."""
    found: list[tuple[Any, Any]] = []
    if isinstance(tree, dict | list):
        for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
            found += [(tree, key), *places(tree[key])]
    return found


@settings(examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@example("instances", 5, {"config": 3})
@example("instances", 5, {"preset": ["llama-2-7b"]})
@example("problems", 0, [])
@given(st.sampled_from(sorted(READERS)), st.integers(0, 10**6), VALUES)
def test_any_value_at_any_place_is_taken_or_refused_in_words(
    tmp_path: Path, kind: str, where: int, value: Any
) -> None:
    texts = bases(kind)
    tree = yaml.safe_load(texts[where % len(texts)])
    spots = places(tree)
    container, key = spots[where % len(spots)]
    container[key] = value
    file = put(tmp_path / "case.json", tree)
    message = "taken"
    try:
        READERS[kind](file)
    except HetoptError as error:
        message = str(error)
    assert message
