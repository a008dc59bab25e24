"""A few trials of each soak kind of the subproblems, and what longer runs found."""

import json
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest

KINDS = (
    "certificates",
    "device_grouping",
    "job_round",
    "job_scheduling",
    "layer_partition",
    "provisioning",
    "recovery",
    "sia_round",
)
FOUND = sorted((Path(__file__).parent / "defects").glob("soaked-*.json"))


@pytest.mark.parametrize("kind", KINDS)
def test_trials_of_a_kind_find_no_contradiction(kind: str) -> None:
    module: Any = import_module(f"soaking.{kind}")
    for seed in range(12):
        data = module.draw(Random(f"{kind} {seed}"))
        assert module.check(json.loads(json.dumps(data)))


@pytest.mark.parametrize("file", FOUND, ids=lambda file: file.stem)
def test_what_was_found_stays_mended(file: Path) -> None:
    found = json.loads(file.read_text(encoding="utf-8"))
    assert import_module(f"soaking.{found['kind']}").check(found["data"])
