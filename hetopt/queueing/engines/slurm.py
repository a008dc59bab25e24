"""Slurm: nodes by scontrol, jobs by sbatch, squeue and scancel.

What is idle is what `scontrol show node` says of GPUs in use, less this queue's own. A
job asks for its nodes by name and for a share of their processors and memory, as large
as its share of their GPUs, so that several jobs have one node. It carries the queue's
key as its comment. Slurm does not start it again by itself (`--no-requeue`): after the
loss of a node the queue chooses anew. What Slurm has forgotten (MinJobAge, 5 minutes by
default) is told by the saved states.

Options: `partition`, `account` and `time` as of `hetopt export --to slurm`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from ...errors import EngineFailed
from ...formats import sinfo
from . import Engine, Launch, Machines, Seen, State, others, output_of

OPTIONS: dict[str, object] = {"partition": str, "account": str, "time": str}

_REMEDY = "run hetopt where Slurm's commands work (sinfo shows nodes)"
_LIST = ("scontrol", "show", "node", "--detail", "--oneliner")
#: How squeue calls states; all others are on their way to running.
_STATES: dict[str, State] = {
    **dict.fromkeys(("COMPLETED",), "done"),
    **dict.fromkeys(("CANCELLED",), "cancelled"),
    **dict.fromkeys(("FAILED", "OUT_OF_MEMORY"), "failed"),
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REVOKED"), "lost"),
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), "lost"),
    **dict.fromkeys(("RUNNING", "COMPLETING", "SUSPENDED", "SIGNALING"), "running"),
    **dict.fromkeys(("STAGE_OUT", "STOPPED"), "running"),
}
# Of the parts of a job the first of these is told.
_WORST: tuple[State, ...] = ("lost", "running", "failed", "cancelled", "waiting")
_COLUMNS = "%i|%T|%S|%e|%k|%r"


class _Node(NamedTuple):
    """A machine with GPUs: those in use by type, and what a GPU has of the rest."""

    used: Mapping[str | None, int]
    gpus: int
    processors: int
    memory_mib: int


class _Row(NamedTuple):
    handle: str
    state: str
    start: str
    end: str
    key: str
    reason: str


def engine(options: Mapping[str, object], folder: Path) -> "Slurm":
    """Return the engine of this machine's Slurm."""
    return Slurm(options)


class Slurm(Engine):
    """A cluster's Slurm, by its own commands."""

    target = "slurm"

    def __init__(self, options: Mapping[str, object]) -> None:
        self._options = options
        self._nodes: dict[str, _Node] = {}

    def machines(self, ours: Mapping[str, int]) -> Machines:
        """Return the nodes that jobs start on, and the GPUs that others hold there."""
        text = output_of(_LIST, _REMEDY)
        self._nodes = dict(_machines(text))
        hosts = sinfo.hosts(text, "scontrol show node")[0]
        self._machine_of = {host.name: host.machine or host.name for host in hosts}
        nodes = {host: self._nodes[self._machine_of[host.name]] for host in hosts}
        used = {host.name: one.used.get(host.gres, 0) for host, one in nodes.items()}
        return Machines("sinfo", text, others(used, ours))

    def options(self, nodes: Mapping[str, int]) -> list[str]:
        """Return the share of a node that goes with a GPU, and the user's words."""
        found = [self._nodes[self._machine_of[name]] for name in nodes]
        each = min(max(1, one.processors // one.gpus) for one in found)
        memory = min(one.memory_mib // one.gpus for one in found)
        told = [f"{name}={value}" for name, value in self._options.items()]
        share = [f"cpus_per_gpu={each}"]
        if memory > 1:
            share.append(f"mem_per_gpu={memory}M")
        return ["nodes=named", *share, *told]

    def find(self, launch: Launch) -> str | None:
        """Return the number of the job with the attempt's key."""
        return next((row.handle for row in _rows() if row.key == launch.key), None)

    def launch(self, launch: Launch) -> str:
        """Submit the files; the number of the job, of its first part."""
        words = ["sbatch", "--parsable", "--no-requeue"]
        words += [f"--job-name={launch.name}", f"--comment={launch.key}"]
        words += [f"--output={launch.log}", str(launch.folder / "job.sbatch")]
        env = {"ARGS": " ".join(launch.words), "MASTER_PORT": str(launch.port)}
        # Where sbatch is run is where the job looks for its files.
        remedy = "correct the job, or the options of the queue"
        told = output_of(words, remedy, launch.folder, **env)
        number = told.strip().partition(";")[0]
        if not number.isdigit():
            raise EngineFailed(
                f"sbatch: found {told.strip()!r}, expected a job's number"
            )
        return number

    def look(self, attempts: Mapping[str, Path]) -> dict[str, Seen]:
        """Return what squeue says of jobs; of one in parts, of the part that tells."""
        parts: dict[str, list[_Row]] = {}
        for row in _rows():
            if row.handle in attempts:
                parts.setdefault(row.handle, []).append(row)
        return {handle: _observe(rows) for handle, rows in parts.items()}

    def end(self, handle: str) -> None:
        """Cancel a job: Slurm signals it, and after its KillWait kills it."""
        output_of(["scancel", handle], _REMEDY)


def _machines(text: str) -> Iterator[tuple[str, _Node]]:
    for line in text.splitlines():
        fields = dict(
            word.partition("=")[::2]
            for word in reversed(line.split())
            if re.match(r"(NodeName|Gres|GresUsed|CPUTot|RealMemory)=", word)
        )
        if "NodeName" not in fields:
            continue
        name = fields["NodeName"]
        place = f"scontrol show node: {name}"
        gpus = sinfo.gpus_of(fields.get("Gres", ""), place)
        if gpus:
            used = sinfo.gpus_of(fields.get("GresUsed", ""), place)
            rest = (int(fields.get(x, 0)) for x in ("CPUTot", "RealMemory"))
            yield name, _Node(used, sum(gpus.values()), *rest)


def _rows() -> Iterator[_Row]:
    """Yield this user's jobs, each part of one in several."""
    asked = ["squeue", "--me", "--noheader", "--states=all", f"--format={_COLUMNS}"]
    for line in output_of(asked, _REMEDY).splitlines():
        words = [word.strip() for word in line.split("|")]
        if len(words) == len(_Row._fields):
            row = _Row(*words)
            yield row._replace(handle=re.split(r"[+_]", row.handle)[0])


def _observe(rows: Sequence[_Row]) -> Seen:
    states = [_STATES.get(row.state, "waiting") for row in rows]
    state: State = next((one for one in _WORST if one in states), "done")
    first = rows[states.index(state)]
    why = "" if state in ("done", "running") else f"{first.state}: {first.reason}"
    started = None if state == "waiting" else _time(first.start)
    ended = None if state in ("waiting", "running") else _time(first.end)
    return Seen(state, why, started, ended)


def _time(text: str) -> float | None:
    """Return seconds since 1970; Slurm's times are this machine's."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
