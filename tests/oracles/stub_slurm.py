"""A Slurm of files: sbatch, squeue, scontrol and scancel as scripts over one state.

Jobs get GPUs by the words of their own files alone, first come first served; a job that
would have more GPUs of a node than there are waits. The test says what ends, and how.
"""

import fcntl
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "squeue", "scontrol", "scancel")
HELD = ("RUNNING", "COMPLETING")
PROCESSORS, MIB = 8, 1000


class StubSlurm:
    """The state in a folder, which processes share."""

    def __init__(self, place: Path) -> None:
        self.place = place

    @classmethod
    def made(cls, place: Path, nodes: dict[str, tuple[str, int]]) -> "StubSlurm":
        """The scripts and a state with these nodes: type and number of GPUs."""
        place.mkdir(parents=True)
        found = cls(place)
        rows = {n: {"type": t, "gpus": g, "up": True} for n, (t, g) in nodes.items()}
        state = {"nodes": rows, "jobs": [], "most": {}}
        (place / "state.json").write_text(json.dumps(state))
        (place / "lock").touch()
        for name in COMMANDS:
            script = place / name
            script.write_text(
                f"#!{sys.executable}\nimport sys\n"
                f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
                "from stub_slurm import command\n"
                f"command({name!r}, {str(place)!r}, sys.argv[1:])\n"
            )
            script.chmod(0o755)
        return found

    @contextmanager
    def state(self) -> Iterator[dict[str, Any]]:
        """The state, alone; what is changed is kept, and waiting jobs then start."""
        with (self.place / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self.place / "state.json"
            state = json.loads(path.read_text())
            yield state
            _start(state)
            path.write_text(json.dumps(state))

    def used(self, state: dict[str, Any]) -> dict[str, int]:
        """GPUs in use by node."""
        return _used(state)

    def finish(
        self, number: int, how: str = "COMPLETED", step: int | None = None
    ) -> None:
        """End a job that has saved the states of a step, by default of its last."""
        with self.state() as state:
            job = next(one for one in state["jobs"] if one["number"] == number)
            save(job, step)
            job["state"] = how

    def lose(self, node: str) -> None:
        """Take a node down, and with it the jobs on it."""
        with self.state() as state:
            state["nodes"][node]["up"] = False
            for job in state["jobs"]:
                if job["state"] in HELD and any(node in part for part in job["parts"]):
                    job["state"] = "NODE_FAIL"

    def bring(self, node: str) -> None:
        """Bring a node back."""
        with self.state() as state:
            state["nodes"][node]["up"] = True


def save(job: dict[str, Any], step: int | None) -> None:
    """Write what the executor would have: the latest states, and lines of steps."""
    words = dict(zip(job["args"][::2], job["args"][1::2], strict=False))
    last = int(words["--steps"]) if step is None else step
    folder = Path(words["--checkpoint"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "latest.json").write_text(json.dumps({"step": last}))
    lines = [f"step {n}  loss 5.0  norm 1.0  lr 1e-04  0.500 s\n" for n in range(last)]
    Path(job["log"]).write_text("".join(lines))


def _used(state: dict[str, Any]) -> dict[str, int]:
    used = dict.fromkeys(state["nodes"], 0)
    for job in state["jobs"]:
        if job["state"] in HELD:
            for part in job["parts"]:
                for node, gpus in part.items():
                    used[node] += gpus
    return used


def _start(state: dict[str, Any]) -> None:
    for job in state["jobs"]:
        if job["state"] != "PENDING":
            continue
        used, nodes = _used(state), state["nodes"]
        asked: dict[str, int] = {}
        for part in job["parts"]:
            for node, gpus in part.items():
                asked[node] = asked.get(node, 0) + gpus
        if all(
            nodes[n]["up"] and used[n] + g <= nodes[n]["gpus"] for n, g in asked.items()
        ):
            job["state"] = "RUNNING"
    for node, gpus in _used(state).items():
        state["most"][node] = max(state["most"].get(node, 0), gpus)


def _submitted(state: dict[str, Any], words: list[str]) -> int:
    options = dict(
        w[2:].split("=", 1) for w in words if w.startswith("--") and "=" in w
    )
    lines = Path(words[-1]).read_text().splitlines()
    parts: list[dict[str, int]] = [{}]
    told: dict[str, str] = {}
    for line in [*lines, "#SBATCH hetjob"]:
        if not line.startswith("#SBATCH"):
            continue
        if line == "#SBATCH hetjob":
            gpus = int(told["gres"].rpartition(":")[2])
            kind = told["gres"].split(":")[1]
            for node in told["nodelist"].split(","):
                if state["nodes"][node]["type"] != kind:
                    raise SystemExit(
                        "sbatch: error: Requested node configuration is not available"
                    )
                parts[-1][node] = gpus
            parts.append({})
            told = {}
        else:
            told |= dict(re.findall(r"--([\w-]+)=(\S+)", line))
    number = len(state["jobs"]) + 1
    state["jobs"].append(
        {
            "number": number,
            "state": "PENDING",
            "key": options.get("comment", ""),
            "name": options.get("job-name", ""),
            "log": options["output"],
            "folder": str(Path.cwd()),  # SLURM_SUBMIT_DIR, whatever --chdir says
            "parts": parts[:-1],
            "args": os.environ.get("ARGS", "").split(),
        }
    )
    return number


def command(name: str, place: str, words: list[str]) -> None:
    """Be one of the commands."""
    slurm = StubSlurm(Path(place))
    with slurm.state() as state:
        if name == "sbatch":
            _say(_submitted(state, words))
        elif name == "scancel":
            for job in state["jobs"]:
                if str(job["number"]) == words[-1] and job["state"] in (
                    *HELD,
                    "PENDING",
                ):
                    job["state"] = "CANCELLED"
        elif name == "squeue":
            for job in state["jobs"]:
                for i in range(len(job["parts"])):
                    part = f"+{i}" if len(job["parts"]) > 1 else ""
                    _say(f"{job['number']}{part}", job["state"], "N/A|N/A", job["key"])
        else:
            used = _used(state)
            for node, one in state["nodes"].items():
                kind, gpus = one["type"], one["gpus"]
                _say(
                    f"NodeName={node} Arch=x86_64 CPUTot={PROCESSORS} "
                    f"Gres=gpu:{kind}:{gpus}(S:0) "
                    f"GresUsed=gpu:{kind}:{used[node]}(IDX:N/A) RealMemory={MIB} "
                    f"State={'MIXED' if one['up'] else 'DOWN*'} Partitions=all"
                )


def _say(*words: object) -> None:
    sys.stdout.write("|".join(map(str, words)))
    sys.stdout.write("|None\n" if len(words) > 1 else "\n")
