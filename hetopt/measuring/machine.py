"""The machine that hetopt runs on, as rows and result files say it."""

import os
import platform
from functools import cache
from pathlib import Path

from ..text.documents import Document


def description() -> Document:
    """The machine itself, and its Python."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


@cache
def text() -> str:
    """The machine in a line, for a cell of a table."""
    found = description()
    return (
        f"{found['processor']}, {found['cores']} cores, {found['memory_gib']} GiB, "
        f"{found['system']}, Python {found['python']}"
    )


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> int | None:
    if not hasattr(os, "sysconf"):
        return None
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)
