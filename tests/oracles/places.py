"""Where the tests, their inputs and the project's own files lie."""

import importlib.util
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
INSTANCES = ROOT / "instances"


def module_of(path: Path) -> Any:
    """What a file of Python defines that is in no package."""
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
