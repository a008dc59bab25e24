"""Malformed instance, problem and plan files, each with the message it must get.

The cases are data: `tests/bad_input/*.yaml`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hetopt.errors import HetoptError
from hetopt.files import load_instance, load_plan, load_problem

FOLDER = Path(__file__).parent / "bad_input"
READERS: dict[str, Callable[[Path], Any]] = {
    "instances": load_instance,
    "problems": load_problem,
    "plans": load_plan,
}


def cases() -> Iterator[Any]:
    for kind in READERS:
        sheet = yaml.safe_load((FOLDER / f"{kind}.yaml").read_text())
        for case in sheet["cases"]:
            base = sheet["base"] if "base" in sheet else sheet["bases"][case["base"]]
            name = f"{kind}-{case['case'].replace(' ', '-')}"
            yield pytest.param(kind, base, case, id=name)


def text_and_suffix(kind: str, base: str, case: dict[str, str]) -> tuple[str, str]:
    if "text" in case:
        return case["text"], case["suffix"]
    assert case["find"] in base, "the case would leave the base as it is"
    return (
        base.replace(case["find"], case["replace"], 1),
        "yaml" if kind == "instances" else "json",
    )


@pytest.mark.parametrize(("kind", "base", "case"), list(cases()))
def test_a_malformed_file_gets_exactly_its_message(
    kind: str, base: str, case: dict[str, str], tmp_path: Path
) -> None:
    text, suffix = text_and_suffix(kind, base, case)
    file = tmp_path / f"case.{suffix}"
    file.write_text(text)
    with pytest.raises(HetoptError) as caught:
        READERS[kind](file)
    found = str(caught.value).replace(str(file), "FILE").replace(f"{tmp_path}/", "")
    assert found == case["message"]


@pytest.mark.parametrize("kind", READERS)
def test_the_bases_of_the_cases_are_well_formed(kind: str, tmp_path: Path) -> None:
    sheet = yaml.safe_load((FOLDER / f"{kind}.yaml").read_text())
    bases = [sheet["base"]] if "base" in sheet else list(sheet["bases"].values())
    for number, base in enumerate(bases):
        file = tmp_path / f"{number}.yaml"
        file.write_text(base)
        assert READERS[kind](file)


def test_a_file_of_many_problems_lists_ten_and_counts_the_rest(tmp_path: Path) -> None:
    sheet = yaml.safe_load((FOLDER / "instances.yaml").read_text())
    unknown = ", ".join(f"unknown{i}: 1" for i in range(14))
    file = tmp_path / "many.yaml"
    file.write_text(sheet["base"].replace("layers: 4", f"layers: 4, {unknown}"))
    with pytest.raises(HetoptError) as caught:
        load_instance(file)
    lines = str(caught.value).splitlines()
    assert len(lines) == 11
    assert lines[-1] == f"{file}: and 4 more"
