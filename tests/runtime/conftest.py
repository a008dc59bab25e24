"""Four ranks for all tests of the folder, which start once; processes of runs."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from hetopt.runtime import processes


@pytest.fixture(scope="package")
def four() -> Iterator[object]:
    """Processes that call a function as the ranks of a job."""
    pytest.importorskip("torch")
    from executed import ranks

    with ranks(4) as made:
        yield made


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """The processes of all ranks of a run, as they start; PyTorch is there."""
    pytest.importorskip("torch")
    found: list[subprocess.Popen[str]] = []
    start = subprocess.Popen

    def noted(*words: Any, **more: Any) -> Any:
        found.append(start(*words, **more))
        return found[-1]

    monkeypatch.setattr(processes.subprocess, "Popen", noted)
    return found
