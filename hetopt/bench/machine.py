"""On what rows are measured: the first line of a result file."""

import hashlib
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .. import registry
from ..measuring import machine
from ..text.documents import Document
from ..text.marks import marked
from .records import Task

PACKAGES = (
    *("numpy", "ortools", "pyscipopt", "pulp", "highspy", "networkx", "pydantic"),
    *("pymetis", "joblib", "distributed"),
)
ROOT = Path(__file__).resolve().parents[2]


def header(suite: str, tasks: Sequence[Task], workers: int | None) -> Document:
    """Suite, machine, versions, commit, limits and threads; `load` is of the start."""
    listed = "\n".join(task.model_dump_json(exclude_none=True) for task in tasks)
    told = {
        "suite": suite,
        "tasks": len(tasks),
        "tasks_digest": "sha256:" + hashlib.sha256(listed.encode()).hexdigest(),
        "hetopt": registry.version(),
        "commit": _git("rev-parse", "HEAD"),
        "modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "machine": machine.description(),
        "versions": versions(),
        "limits": {
            "time_limit_s": sorted({task.time_limit_s for task in tasks}),
            "wall_limit_s": sorted({task.wall_limit_s for task in tasks}),
            "memory_mib": sorted({task.memory_mib for task in tasks}),
        },
        "threads": sorted({task.threads for task in tasks}),
        "workers": workers,
        "load": load(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return marked(told)


def load() -> float | None:
    """How many processes want to run; an idle machine says 1 at most."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Versions of those packages that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _git(*words: str) -> str | None:
    """Return what git says of the checkout; None without one."""
    if not (ROOT / "pyproject.toml").is_file():
        return None
    try:
        told = subprocess.run(
            ["git", "-C", str(ROOT), *words],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip()
