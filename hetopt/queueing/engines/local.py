"""This machine: jobs are processes of their own, which outlive the command.

GPUs are what nvidia-smi lists; those that processes of others compute on are taken. The
option `hosts` names a hostfile (`n1 slots=4 type=A100-80GB-SXM4`) in place of that: its
devices count over its lines, and jobs of several of its hosts run here as well, such as
those with `--cpu` among their arguments.

A job's number and when it began are the kernel's, its exit code is the file `exit` that
it leaves. SIGTERM has it save its states; what is left after NOTICE_S is killed.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ...errors import EngineFailed, InstanceError, Unsupported
from ...formats import hostfile
from ...text.documents import Fields
from ...text.parsing import read_text
from ...text.writing import write_text
from . import Engine, Launch, Machines, Seen, others, output_of

OPTIONS: dict[str, object] = {"hosts": str}
#: Seconds that an attempt has to save its states before it is killed.
NOTICE_S = 60.0
_START_S = 20.0  # until a process that was started says its number
_PROCESS, _EXIT = "process", "exit"
_KEY = "HETOPT_ATTEMPT"
_RUN = """\
#!/usr/bin/env bash
# Run an attempt, and leave its exit code: `exit`. A notice (SIGTERM) is the program's,
# which gets it too; this shell waits for what the program says.
cd "$(dirname "$0")"
trap : TERM
stat=" $(sed 's/.*) //' /proc/$$/stat)"
read -r -a field <<< "$stat"
echo "$$:${{field[19]}}" > {process}.new && mv {process}.new {process}
{words}
echo $? > {exit}.new && mv {exit}.new {exit}
"""
_SMI = "nvidia-smi"
_REMEDY = "name this machine's GPUs with -o hosts=HOSTFILE"


def engine(options: Fields, folder: Path) -> "Local":
    """Return the engine of this machine; `InstanceError` for a lacking hostfile."""
    hosts = options.get("hosts")
    if hosts is not None and not Path(hosts).is_file():
        raise InstanceError(
            f"option hosts: found {hosts!r}, which is no file, expected a hostfile; "
            "correct it"
        )
    return Local(None if hosts is None else Path(hosts))


class Local(Engine):
    """Processes of this machine."""

    target = "torchrun"

    def __init__(self, hosts: Path | None) -> None:
        self._hosts = hosts
        self._devices: dict[int, str] = {}  # the node of each
        self._busy: set[int] = set()

    def machines(self, ours: Mapping[str, int]) -> Machines:
        """Return this machine's GPUs, or the hosts of the file that was named."""
        if self._hosts is not None:
            text = read_text(self._hosts)
            found = hostfile.hosts(text, str(self._hosts))
            names = (host.name for host in found for _ in range(host.gpus))
            self._devices = dict(enumerate(names))
            return Machines("hostfile", text, {})
        text, self._devices, self._busy = _list()
        used = Counter(self._devices[number] for number in self._busy)
        return Machines("hostfile", text, others(used, ours))

    def devices(self, nodes: Mapping[str, int], held: Sequence[int]) -> Sequence[int]:
        """Return as many free devices of each node, the lowest first."""
        found: list[int] = []
        for node, gpus in nodes.items():
            mine = [number for number, where in self._devices.items() if where == node]
            idle = [n for n in mine if n not in held and n not in self._busy]
            if len(idle) < gpus:
                raise EngineFailed(
                    f"{node}: found {len(idle)} idle GPUs, expected {gpus}: another "
                    "program took them; the job waits"
                )
            found += idle[:gpus]
        return found

    def find(self, launch: Launch) -> str | None:
        """Return the number of the attempt's process, by the key in its environment."""
        if (told := _text(launch.folder / _PROCESS)) is not None:
            return told
        for place in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if f"{_KEY}={launch.key}".encode() in place.read_bytes().split(b"\0"):
                    return _handle(int(place.parent.name))
        return None

    def launch(self, launch: Launch) -> str:
        """Start the executor for all GPUs of the attempt, or the user's program."""
        if not launch.is_own:
            raise Unsupported(
                "train: found a program and the engine local, which runs the executor "
                "alone: leave the field out, or use another engine"
            )
        run = [sys.executable, "-m", "hetopt", "run", "plan.json", *launch.words]
        text = _RUN.format(process=_PROCESS, exit=_EXIT, words=shlex.join(run))
        script = launch.folder / "run.sh"
        write_text(script, text)
        devices = ",".join(map(str, launch.devices))
        where = {_KEY: launch.key, "CUDA_VISIBLE_DEVICES": devices}
        words = ["setsid", "bash", str(script)]
        started = (
            f"{shlex.join(words)} > {shlex.quote(str(launch.log))} 2>&1 < /dev/null &"
        )
        subprocess.run(["bash", "-c", started], env={**os.environ, **where}, check=True)
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if (told := _text(launch.folder / _PROCESS)) is not None:
                return told
            time.sleep(0.05)
        raise EngineFailed(
            f"{script}: did not start within {_START_S:g} s; see its log"
        )

    def look(self, attempts: Mapping[str, Path]) -> dict[str, Seen]:
        """Return whether processes live, else how they ended."""
        return {handle: _observe(handle, place) for handle, place in attempts.items()}

    def end(self, handle: str) -> None:
        """Signal an attempt, and kill it where it is still there after NOTICE_S."""
        number = int(handle.partition(":")[0])
        deadline = time.monotonic() + NOTICE_S
        for how in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                if _handle(number) == handle:
                    os.killpg(number, how)
            while _handle(number) == handle and time.monotonic() < deadline:
                time.sleep(0.1)


def _observe(handle: str, folder: Path) -> Seen:
    if _handle(int(handle.partition(":")[0])) == handle:
        return Seen("running", started=_time(folder / _PROCESS))
    started, ended = (_time(folder / name) for name in (_PROCESS, _EXIT))
    code = _text(folder / _EXIT)
    if code is None:
        return Seen("lost", "its process was killed", started)
    if code == "0":
        return Seen("done", "", started, ended)
    how = int(code)
    why = f"ended by signal {how - 128}" if how > 128 else f"ended with exit code {how}"
    return Seen("failed", why, started, ended)


def _handle(number: int) -> str | None:
    """Return a process with when it began; None where it is gone, or a dead child."""
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{number}:{fields[19]}"


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


def _time(path: Path) -> float | None:
    return path.stat().st_mtime if path.exists() else None


def _list() -> tuple[str, dict[int, str], set[int]]:
    """Return a hostfile of this machine's GPUs, their nodes, and those in use."""
    form = ("--format=csv,noheader",)
    rows = output_of([_SMI, "--query-gpu=index,uuid,name", *form], _REMEDY).splitlines()
    apps = output_of([_SMI, "--query-compute-apps=gpu_uuid,pid", *form], _REMEDY)
    used = {line.partition(",")[0].strip() for line in apps.splitlines()}
    machine = socket.gethostname().partition(".")[0]
    cards: dict[str, list[tuple[int, str]]] = {}
    for row in rows:
        number, uuid, name = (word.strip() for word in row.split(",", 2))
        cards.setdefault(re.sub(r"\s+", "-", name), []).append((int(number), uuid))
    devices, busy, lines = dict[int, str](), set[int](), []
    for card, those in cards.items():
        node = machine if len(cards) == 1 else f"{machine}-{card.lower()}"
        lines.append(f"{node} slots={len(those)} type={card}\n")
        devices |= dict.fromkeys((number for number, _ in those), node)
        busy |= {number for number, uuid in those if uuid in used}
    return "".join(lines), devices, busy
