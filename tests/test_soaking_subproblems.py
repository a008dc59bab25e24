"""What runs of the soak's kinds of subproblems once found stays mended."""

import json
from importlib import import_module
from pathlib import Path

import pytest
from places import TESTS

FOUND = sorted((TESTS / "defects").glob("soaked-*.json"))


@pytest.mark.parametrize("file", FOUND, ids=lambda file: file.stem)
def test_what_was_found_stays_mended(file: Path) -> None:
    found = json.loads(file.read_text(encoding="utf-8"))
    assert import_module(f"soaking.{found['kind']}").check(found["data"])
