"""Megatron-Bridge: every field of an export is one of its configuration's."""

import ast
import dataclasses
import json
import os
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from exporter_plans import EVEN, UNEVEN
from model_configs import GPT, LLAMA_31, MIXTRAL, QWEN, made_of

from hetopt.formats import exporting

pytestmark = [pytest.mark.targets, pytest.mark.tool("megatron_bridge")]
PROVIDER = Path("models", "gpt_provider.py")


def source() -> Path:
    """The library's folder: of a checkout, or of what is installed."""
    if checkout := os.environ.get("MEGATRON_BRIDGE"):
        return Path(checkout, "src", "megatron", "bridge")
    found = util.find_spec("megatron")
    for place in (found and found.submodule_search_locations) or ():
        if (Path(place) / "bridge" / PROVIDER).is_file():
            return Path(place) / "bridge"
    pytest.skip("megatron-bridge is not installed")


def fields_of(path: Path, name: str) -> set[str]:
    """Fields of a class in a file that cannot be imported without GPUs."""
    tree = ast.parse(path.read_text("utf-8"))
    (made,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    return {
        line.target.id
        for line in made.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }


@pytest.mark.parametrize("config", [GPT, LLAMA_31, MIXTRAL, QWEN])
@pytest.mark.parametrize("plan", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_fields_are_those_of_its_configuration(
    config: dict[str, Any], plan: Any
) -> None:
    core = pytest.importorskip("megatron.core.transformer.transformer_config")
    known = {field.name for field in dataclasses.fields(core.TransformerConfig)}
    known |= fields_of(source() / PROVIDER, "GPTModelProvider")
    files = exporting.export_plan("megatron-bridge", made_of(config), plan)
    told = json.loads(files["settings.json"])
    assert set(told["model"]) <= known
    whole = fields_of(source() / "training" / "config.py", "ConfigContainer")
    assert {*told, *told[""]} - {""} <= whole
