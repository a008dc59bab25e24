"""A live queue on a Slurm of this machine, and on this machine: nobody names GPUs."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import live_queue
import pytest
from conftest import need
from slurm_cluster import NODES, cluster, lacking

from hetopt.queueing.jobs import read
from hetopt.queueing.scheduler import Queue
from hetopt.queueing.store import Entry

pytestmark = pytest.mark.targets

TYPES = "types=a100:A100-80GB-SXM4,l40s:L40S"
LINK = "inter_gbytes_per_s=3"
#: Passes after which a second queue of a folder is killed, and started again.
KILLED_EVERY = 5
# Names of nodes are no hosts of this machine, which all of them are.
HERE = """\
#!/usr/bin/env bash
MASTER_ADDR=127.0.0.1 exec bash ./train.sh "$@"
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A cluster of its own, whose nodes may be killed."""
    need("torch")
    if why := lacking():
        pytest.skip(why)
    here = tmp_path / "here.sh"
    here.write_text(HERE)
    here.chmod(0o755)
    (tmp_path / "slurm").mkdir()
    with cluster(tmp_path / "slurm") as env:
        monkeypatch.setenv("SLURM_CONF", env["SLURM_CONF"])
        monkeypatch.setenv("PATH", live_queue.programs(tmp_path / "bin"))
        monkeypatch.setenv("TRAIN", str(here))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        yield env


@pytest.mark.tool("slurm")
def test_twelve_jobs_on_slurm_and_a_node_that_is_killed(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "queue"
    made = Queue.made(folder, "slurm", [TYPES, LINK])
    made.submit([read(path) for path in live_queue.written(tmp_path)])
    killed: list[str] = []

    def happens(turn: int, entries: list[Entry]) -> None:
        """Once a job has saved states, its node goes down, with all that runs there."""
        attempt = None if killed else live_queue.halfway(folder, entries)
        if attempt is None:
            return
        # A part of a machine goes with the machine, and a job with any of its nodes.
        part = min(attempt.nodes)
        node = next(name for name in NODES if part.split("-")[0] == name)
        words = ["scontrol", "update", f"nodename={node}", "state=down", "reason=test"]
        subprocess.run(words, check=True)
        killed.append(node)

    entries, told = live_queue.followed(folder, happens)
    assert killed
    assert any("lost its GPUs" in line for line in told), told
    assert any(len(entry.attempts) > 1 for entry in entries)
    live_queue.check(folder, entries)


def test_twelve_jobs_on_this_machine_and_processes_that_are_killed(
    tmp_path: Path,
) -> None:
    """A second queue places as well; it is killed, wherever it is, and comes back."""
    need("torch")
    hosts = tmp_path / "hosts"
    hosts.write_text("n1 slots=2 type=A100-80GB-SXM4\nn2 slots=1 type=L40S\n")
    folder = tmp_path / "queue"
    made = Queue.made(folder, "local", [f"hosts={hosts}", LINK])
    made.submit([read(path) for path in live_queue.written(tmp_path)])
    killed: list[int] = []
    others: list[subprocess.Popen[bytes]] = []
    words = [sys.executable, "-m", "hetopt", "queue", "--queue", str(folder)]
    with (tmp_path / "other.txt").open("wb") as said:

        def happens(turn: int, entries: list[Entry]) -> None:
            if turn % KILLED_EVERY == 0:
                end(others)
                follow = [*words, "--follow", "--every", "1"]
                others.append(subprocess.Popen(follow, stdout=said, stderr=said))
            attempt = None if killed else live_queue.halfway(folder, entries)
            if attempt is None or attempt.handle is None:
                return
            killed.append(int(attempt.handle.partition(":")[0]))
            os.killpg(killed[0], signal.SIGKILL)

        try:
            entries, told = live_queue.followed(folder, happens)
        finally:
            end(others)
    assert killed
    assert len(others) > 1
    lines = "\n".join([*told, (tmp_path / "other.txt").read_text()])
    assert "lost its GPUs (its process was killed)" in lines, lines
    live_queue.check(folder, entries)
    live_queue.check_that_devices_were_given_once(entries)


def end(queues: "list[subprocess.Popen[bytes]]") -> None:
    """Kill the last queue, whatever it is doing."""
    for queue in queues[-1:]:
        queue.kill()
        queue.wait()
