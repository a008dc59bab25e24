"""Exports held to the real tools: `pytest -m targets`, nothing is installed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).resolve().parent / "programs"


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., Any]:
    """Run a program of this folder by the tools; the last line that it prints."""

    def run(
        program: str, needs: str, *words: str, folder: Path = tmp_path, **env: str
    ) -> Any:
        for module in needs.split():
            if util.find_spec(module) is None:
                pytest.skip(f"{module} is not installed")
        path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        ended = subprocess.run(
            [sys.executable, str(PROGRAMS / program), *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-6000:]
        return json.loads(ended.stdout.splitlines()[-1])

    return run
