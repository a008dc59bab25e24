"""`hetopt checkpoint`: what lies where."""

import json
from pathlib import Path
from typing import Any

import pytest
from random_recoveries import create, llama, random_content
from typer.testing import CliRunner

from hetopt import cli
from hetopt.checkpoints import Manifest, Shard


def run(*words: object, code: int = 0) -> Any:
    told = CliRunner().invoke(cli.app, [str(word) for word in words])
    assert told.exit_code == code, told.output
    return json.loads(told.stdout) if "--json" in words else told.output


@pytest.fixture
def whole(tmp_path: Path) -> Manifest:
    """Whole units in the cloud."""
    manifest = llama()
    shards = [Shard(unit.name, 0, 1, "cloud") for unit in manifest.units]
    content = random_content(4)
    create(tmp_path / "whole", manifest, shards, content)
    return manifest


def test_what_lies_where_is_listed(tmp_path: Path, whole: Manifest) -> None:
    told = run("checkpoint", tmp_path / "whole", "--json")
    (row,) = told["places"]
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    assert (row["place"], row["degree"], row["bytes"]) == ("cloud", 1, size)
    assert row["units"] == [unit.name for unit in whole.units]
    assert told["incomplete"] == []
    assert "cloud" in run("checkpoint", tmp_path / "whole")


def test_units_that_are_not_whole_anywhere_are_named(
    tmp_path: Path, whole: Manifest
) -> None:
    (tmp_path / "whole" / "cloud" / "2.tp0of1.safetensors").unlink()
    told = run("checkpoint", tmp_path / "whole", "--json", code=3)
    assert told["incomplete"] == ["2"]
    assert "not whole anywhere: 2" in run("checkpoint", tmp_path / "whole", code=3)


def test_damaged_shards_are_named(tmp_path: Path, whole: Manifest) -> None:
    path = tmp_path / "whole" / "cloud" / "2.tp0of1.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    told = run("checkpoint", tmp_path / "whole", code=2)
    assert "2.tp0of1.safetensors" in told
    assert "truncated" in told


def test_what_is_missing_is_said() -> None:
    told = run("checkpoint", "nowhere", code=2)
    assert "found no such folder, expected a checkpoint" in " ".join(told.split())
