"""Elastic runs over hosts: agents on loopback addresses are killed and come back."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from made_plans import pipeline, stage
from three_hosts import three_hosts

import hetopt
from hetopt.errors import InstanceError, Unsupported
from hetopt.plans import TrainingPlan
from hetopt.runtime import hosts as hosts_module
from hetopt.runtime import supervisor
from hetopt.runtime.election import Election, Leader
from hetopt.runtime.hosts import BACK_S, Hosts
from hetopt.runtime.jobs import Optimiser, Settings, job
from hetopt.runtime.links import Link
from hetopt.schema import Instance
from hetopt.text.complaints import validated

TREE = three_hosts("hosts", gpus=1)
STAGES = [stage(0, 1, (1, "a:0")), stage(1, 3, (1, "b:0")), stage(3, 4, (1, "c:0"))]
PIPELINES = [pipeline(8, 1, *STAGES)]
DATA = validated(Instance, TREE, "instance")
PLAN = validated(TrainingPlan, {"pipelines": PIPELINES}, "plan")
ADDRESS = {"a": "127.0.0.2", "b": "127.0.0.3", "c": "127.0.0.4"}
#: Seconds without a row of any host, after which a run stands.
PATIENCE_S = 600.0
LOSSES = int(os.environ.get("LOSSES", "50"))
# A host's process: its rows go to a file, a line each.
PROGRAM = """
import json, sys
import hetopt
from hetopt.runtime import elastic, hosts
elastic.DEFAULT_TIME_S = 0.2
hosts.BACK_S = 2.0
plan, rows, settings = sys.argv[1:]
with open(rows, "a") as file:
    def note(row):
        file.write(json.dumps(row) + "\\n")
        file.flush()
    hetopt.run(plan, progress=note, **json.loads(settings))
"""


class Fleet:
    """The processes of all hosts."""

    def __init__(self, folder: Path, steps: int, every: int) -> None:
        self.folder, self.steps = folder, steps
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.plan = folder / "plan.json"
        tree = {"instance": TREE, "plan": {"pipelines": PIPELINES}}
        self.plan.write_text(json.dumps(tree))
        self.settings = {
            **{"steps": steps, "every": every, "cpu": True, "precision": "fp64"},
            **{"checkpoint": str(folder / "states"), "elastic": True, "timeout_s": 20},
            **{"decay": "none"},
        }

    def start(self, host: str) -> None:
        """Start a host's process."""
        told = {**self.settings, "host": host, "address": ADDRESS[host]}
        rows = str(self.folder / f"{host}.jsonl")
        words = [sys.executable, "-c", PROGRAM, str(self.plan), rows, json.dumps(told)]
        self.processes[host] = subprocess.Popen(words)

    def kill(self, host: str) -> None:
        """Kill a host: its process and those of its ranks."""
        process = self.processes.pop(host)
        for pid in [process.pid, *children(process.pid)]:
            with suppress(ProcessLookupError):  # it just ended, as ranks do
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def leave(self, host: str) -> None:
        """Give a host notice, and wait until it has left in order."""
        process = self.processes.pop(host)
        process.terminate()
        self.await_end(process)

    def rows(self) -> list[dict[str, Any]]:
        """Return what all hosts told, host by host."""
        found = []
        for host in ADDRESS:
            file = self.folder / f"{host}.jsonl"
            lines = file.read_text().splitlines() if file.exists() else []
            found += [json.loads(line) for line in lines if line.endswith("}")]
        return found

    def done(self) -> list[dict[str, Any]]:
        """Return all rows of steps."""
        return [row for row in self.rows() if "step" in row]

    def await_steps(self, more: int) -> None:
        """Wait until so many more steps were done."""
        count = len(self.done()) + more
        self.await_rows(lambda: len(self.done()) >= count)

    def await_rows(self, are_there: Callable[[], bool]) -> None:
        """Wait until rows are there, while hosts still say something."""
        said, since = -1, time.monotonic()
        while not are_there():
            assert self.is_running(), f"no host is left: {self.rows()[-9:]}"
            if (now := len(self.rows())) != said:
                said, since = now, time.monotonic()
            assert time.monotonic() - since < PATIENCE_S, f"stands: {self.rows()[-9:]}"
            time.sleep(0.05)

    def is_running(self) -> bool:
        """Return whether some host takes part."""
        return any(process.poll() is None for process in self.processes.values())

    def leader(self) -> str:
        """Return the host that leads."""
        leader = Election(self.folder / "states").leader()
        assert leader is not None
        return leader.host

    def saved(self) -> int:
        """Return the newest step that is saved."""
        state = supervisor.Saved.of(self.settings["checkpoint"])  # type: ignore[arg-type]
        return state.step if state else 0

    def wait(self) -> None:
        """Wait until all hosts have ended in order."""
        for process in self.processes.values():
            self.await_end(process)
            assert process.returncode == 0

    def await_end(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until a process has ended, while hosts still say something."""
        said, since = len(self.rows()), time.monotonic()
        while process.poll() is None:
            if (now := len(self.rows())) != said:
                said, since = now, time.monotonic()
            assert time.monotonic() - since < PATIENCE_S, f"stands: {self.rows()[-9:]}"
            time.sleep(0.1)

    def assert_as_if_nothing_was(self) -> None:
        """All rows have the losses of a run that was left alone, up to the last step.

        A leader that is killed takes rows with it that it has not written yet.
        """
        done = self.done()
        rules = Optimiser(decay="none")
        steps = max(row["step"] for row in done)
        plain = Settings(steps=steps, cpu=True, precision="fp64", optimiser=rules)
        whole = supervisor.run(job(DATA, PLAN, plain)).steps
        want = {row["step"]: (row["loss"], row["norm"]) for row in whole}
        for row in done:
            pair = row["loss"], row["norm"]
            assert pair == pytest.approx(want[row["step"]], rel=1e-10)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    words = ["ps", "-o", "pid=", "--ppid", str(pid)]
    text = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    return [int(word) for word in text.split()]


@pytest.fixture
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    pytest.importorskip("torch")
    made = Fleet(tmp_path, *request.param)
    yield made
    for host in [*made.processes]:
        if made.processes[host].poll() is None:
            made.kill(host)


@pytest.mark.slow
@pytest.mark.parametrize("fleet", [(40, 2)], indirect=True)
def test_a_run_goes_on_without_a_host_and_without_its_leader(fleet: Fleet) -> None:
    for host in ADDRESS:
        fleet.start(host)
    fleet.await_steps(3)
    leader = fleet.leader()
    other = next(host for host in ADDRESS if host != leader)
    saved = fleet.saved()
    fleet.kill(other)
    fleet.await_steps(3)
    change = next(row for row in fleet.rows() if "reason" in row)
    assert change["lost"] == [f"{other}:0"]
    assert f"({other}:0) is gone with its host" in change["reason"]
    assert change["from_step"] >= saved
    fleet.start(other)
    fleet.await_rows(lambda: any(row.get("arrived") for row in fleet.rows()))
    fleet.await_steps(2)
    fleet.kill(leader)
    fleet.wait()
    assert [row["leads"] for row in fleet.rows() if row.get("term") == 1] == [leader]
    assert any(row.get("term") == 2 for row in fleet.rows())
    assert Election(fleet.folder / "states").leader() is None
    fleet.assert_as_if_nothing_was()
    assert {row["step"] for row in fleet.done()} == {*range(1, fleet.steps + 1)}


@pytest.mark.slow
@pytest.mark.parametrize("fleet", [(100000, 1)], indirect=True)
def test_fifty_losses_lose_no_saved_step(fleet: Fleet) -> None:
    """Hosts, leaders among them, and ranks are killed at random; some have notice."""
    random, saved = Random("kills"), 0
    for host in ADDRESS:
        fleet.start(host)
    for _ in range(LOSSES):
        fleet.await_steps(random.randint(1, 4))
        assert fleet.saved() >= saved
        saved = fleet.saved()
        host = random.choice(sorted(fleet.processes))
        ranks = children(fleet.processes[host].pid)
        kind = random.random()
        if ranks and kind < 0.2:
            with suppress(ProcessLookupError):
                os.kill(random.choice(ranks), signal.SIGKILL)
        elif kind < 0.4:
            fleet.leave(host)
        else:
            fleet.kill(host)
        fleet.await_steps(1)
        for gone in set(ADDRESS) - {*fleet.processes}:
            fleet.start(gone)
    for host in [*fleet.processes]:
        fleet.leave(host)
    assert fleet.saved() >= saved
    fleet.assert_as_if_nothing_was()


# --- without processes ---------------------------------------------------------------


def test_one_host_alone_wins_a_term(tmp_path: Path) -> None:
    election = Election(tmp_path)
    assert election.leader() is None
    for term in (1, 2, 3):
        all_hosts = [
            Leader(term=term, host=f"h{i}", address="127.0.0.1", port=1 + i)
            for i in range(8)
        ]
        with ThreadPoolExecutor(8) as threads:
            won = [*threads.map(election.claim, all_hosts)]
        assert sum(won) == 1
        leader = all_hosts[won.index(True)]
        assert election.leader() == leader
        assert election.is_led_by(leader)
        assert not election.is_led_by(leader.model_copy(update={"term": term - 1}))
    election.close()
    assert election.leader() is None


class Guest:
    """A host's end of its link, without ranks."""

    def __init__(self, port: int, host: str, run: str = "run") -> None:
        self._link = Link(socket.create_connection(("127.0.0.1", port)))
        self.lines = self._link.lines()
        self.send({"host": host, "run": run})

    def send(self, line: dict[str, Any]) -> None:
        self._link.send(line)

    def next(self, word: str) -> Any:
        """Return what the next line with that word says."""
        return next(line[word] for line in self.lines if word in line)

    def close(self) -> None:
        self._link.close()


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        leader = Leader(term=2, host="a", address="127.0.0.1", port=port)
        made = Hosts(["a:0", "a:1", "b:0"], "run", 60, leader)
        assert made.changed() == (set(), [])
        threading.Thread(target=made.serve, args=(listener,), daemon=True).start()
        yield made
        listener.shutdown(socket.SHUT_RDWR)
        made.close()


def news(hosts: Hosts) -> set[str]:
    """Return the GPUs that are there, once that changes."""
    while (found := hosts.changed()) is None:
        time.sleep(0.01)
    return found[0]


def test_gpus_are_there_while_their_host_is_connected(hosts: Hosts) -> None:
    port = hosts.leader.port
    a = Guest(port, "a")
    assert news(hosts) == {"a:0", "a:1"}
    b = Guest(port, "b")
    assert news(hosts) == {"a:0", "a:1", "b:0"}
    hosts.lose(["a:1"])
    assert news(hosts) == {"a:0", "b:0"}
    b.send({"leaves": True})
    assert news(hosts) == {"a:0"}
    a.close()
    assert news(hosts) == set()
    again = Guest(port, "a")
    assert news(hosts) == {"a:0", "a:1"}
    again.close()


def test_a_lost_gpu_of_a_host_that_is_there_is_tried_again_later(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No GPU stays lost for ever, or a run could wait for hosts that are all there."""
    clock = [0.0]
    monkeypatch.setattr(hosts_module.time, "monotonic", lambda: clock[0])
    guest = Guest(hosts.leader.port, "b")
    assert news(hosts) == {"b:0"}
    for times in range(3):
        hosts.lose(["b:0"])
        assert news(hosts) == set()
        clock[0] += BACK_S * 2**times - 1
        assert hosts.changed() is None
        clock[0] += 2
        assert news(hosts) == {"b:0"}
    guest.close()


def test_ranks_end_with_their_host_and_say_so(hosts: Hosts) -> None:
    port, said = hosts.leader.port, []
    b = Guest(port, "b")
    news(hosts)
    rank = hosts.start("b:0", {"number": 0}, said.append)
    key = b.next("start")
    b.send({"rank": key, "line": {"alive": True, "done": 3}})
    b.close()
    rank.wait()
    assert said == [{"alive": True, "done": 3}, None]
    assert rank.poll() == -signal.SIGKILL
    assert rank.ending == "is gone with its host"
    assert hosts.start("a:0", {}, said.append).poll() == -signal.SIGKILL


def test_strangers_are_refused_by_name(hosts: Hosts) -> None:
    port = hosts.leader.port
    assert "'z', expected a node" in Guest(port, "z").next("refused")
    assert "start all hosts alike" in Guest(port, "b", "x").next("refused")
    first = Guest(port, "b")
    news(hosts)
    second = Guest(port, "b")
    assert "took its place" in first.next("refused")
    second.close()


def test_options_of_hosts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    told = {"steps": 1, "cpu": True, "checkpoint": str(tmp_path)}
    for more, words in (
        ({"host": "a"}, "--host needs --elastic: add it"),
        ({"address": "x"}, "--address needs --host: add it"),
        ({"host": "a", "elastic": True, "nodes": "n"}, "--nodes and --host exclude"),
        ({"host": "z", "elastic": True}, "--host: found 'z', .* instance: a, b, c"),
    ):
        with pytest.raises((Unsupported, InstanceError), match=words):
            hetopt.run(PLAN, DATA, **told, **more)
    with pytest.raises(Unsupported, match="give --checkpoint"):
        hetopt.run(PLAN, DATA, steps=1, cpu=True, elastic=True, host="a")
