"""A model's Hugging Face `config.json` as the model of an instance.

`architectures.from_config` says which keys are read. The name of the model is the
option `name`, else the configuration's `_name_or_path`, else the folder's name.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..catalogue.architectures import from_config
from ..errors import InstanceError
from ..schema import LONGEST_NAME, name_fault
from ..text.parsing import parse_tree, read_text

OPTIONS: dict[str, type] = {"name": str}


def read(paths: Sequence[Path], *, name: str | None = None) -> dict[str, Any]:
    """`{"source": ..., "model": ...}` of one configuration; else `InstanceError`."""
    if len(paths) != 1:
        raise InstanceError(
            f"found {len(paths)} files, expected one config.json; name one"
        )
    path = paths[0]
    config = parse_tree(read_text(path), str(path), is_json=True)
    called = name or _name(config, path)
    if fault := name_fault(called):
        raise InstanceError(f"{path}: name of the model: {fault}, or give --name NAME")
    try:
        spec = from_config(config, called)
    except InstanceError as error:
        raise InstanceError(f"{path}: {error}") from None
    return {
        "source": f"configuration {path.name}",
        "model": spec.model_dump(mode="json", exclude_none=True, exclude_defaults=True),
    }


def _name(config: dict[str, Any], path: Path) -> str:
    said = config.get("_name_or_path")
    if isinstance(said, str) and said.strip("/. "):
        return said.strip("/. ")[:LONGEST_NAME].strip()
    return path.resolve().parent.name or path.stem
