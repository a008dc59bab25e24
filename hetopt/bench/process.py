"""One task in a process of its own, ended at its wall and memory limits.

A method that crashes, hangs or takes all memory gives a row that says so.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from ..text.documents import Document
from ..text.parsing import read_tree
from ..text.writing import write_json
from .records import Task

LOOK_S = 0.1
# The child imports what the parent would: the same hetopt, whatever the folder.
CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from hetopt.bench.child import main; main(sys.argv[2])"
)
Answer = Document
Failure = tuple[str, str]  # a status, and the reason


def run(task: Task, stop: threading.Event | None = None) -> Answer:
    """The answer to a task: its row, and the document of its plan, where it has one.

    `stop` ends the process early; the answer then is empty.
    """
    begun = time.monotonic()
    with TemporaryDirectory(prefix="hetopt-bench-") as folder:
        why = _watched(task, Path(folder), stop)
        if why is not None and why[0] == "stopped":
            return {}
        if why is None and (left := Path(folder, "answer.json")).exists():
            answer = read_tree(left)
        else:
            failed = why or ("crashed", "ended without an answer")
            answer = {"row": task.failed(*failed)}
    answer["row"]["seconds"]["wall"] = round(time.monotonic() - begun, 4)
    return answer


def _watched(task: Task, folder: Path, stop: threading.Event | None) -> Failure | None:
    """Why the process did not end by itself with an answer, None where it did."""
    write_json(folder / "task.json", task.model_dump(mode="json"))
    file = folder / "stderr"
    path = json.dumps([entry or os.getcwd() for entry in sys.path])
    with (
        file.open("wb") as said,
        subprocess.Popen(
            [sys.executable, "-c", CODE, path, str(folder)],
            stdin=subprocess.PIPE,  # closed when we die: the child then ends too
            stdout=subprocess.DEVNULL,
            stderr=said,
            env={**os.environ, "OMP_NUM_THREADS": str(task.threads)},
            start_new_session=os.name == "posix",
        ) as child,
    ):
        wall, memory = task.wall_limit_s, task.memory_mib
        deadline = time.monotonic() + wall
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    code = child.wait(LOOK_S)
                    return ("crashed", _last_words(code, file)) if code else None
                if stop is not None and stop.is_set():
                    return "stopped", ""
                if time.monotonic() > deadline:
                    return "timeout", f"ended after {wall:g} s of wall time"
                if memory_mib(child.pid) > memory:
                    return "out of memory", f"ended at more than {memory} MiB"
        finally:
            if child.poll() is None:
                end_descendants(child.pid)
                child.kill()


def _last_words(code: int, said: Path) -> str:
    how = f"exit code {code}"
    if code < 0:
        named = {int(number): number.name for number in signal.Signals}
        how = named.get(-code, f"signal {-code}")
    with said.open("rb") as file:
        file.seek(max(0, said.stat().st_size - 4000))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    return f"{how}: {lines[-1][:400]}" if lines else how


# --- processes that the process started ------------------------------------------


def end_descendants(pid: int) -> None:
    """Kill what a process started, such as CBC in a session of its own."""
    for descendant in _descendants(pid):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(descendant, signal.SIGKILL)


def memory_mib(pid: int) -> int:
    """Memory that a process and its descendants hold; 0 where it cannot be known."""
    page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
    pages = 0
    for process in (pid, *_descendants(pid)):
        with suppress(OSError, ValueError, IndexError):
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * page // 2**20


def _descendants(pid: int) -> Iterator[int]:
    """All processes below one, by the parents that Linux names; else none."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            # The name, in brackets, may hold anything: the state comes after the last.
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    todo = [*children.get(pid, ())]
    while todo:
        found = todo.pop()
        yield found
        todo += children.get(found, ())
