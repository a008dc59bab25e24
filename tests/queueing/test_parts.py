"""Parts of the live queue: files of jobs, decisions, logs, processes on this host."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from disk import put
from waiting import awaited

from hetopt.errors import InstanceError
from hetopt.problems.job_scheduling import Data, micro
from hetopt.queueing import deciding, following, scheduler
from hetopt.queueing.deciding import decide
from hetopt.queueing.engines import Launch, local, ray, slurm
from hetopt.queueing.jobs import TrainingJob, read
from hetopt.queueing.machines import name_of
from hetopt.queueing.store import Attempt, Entry
from hetopt.scheduling import catalogue, simulator, workloads

JOB = "model: gpt2\nglobal_batch: 8\nsequence_length: 64\n"
MICRO = 10**6


# --- jobs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "found neither of steps and tokens"),
        ("steps: 5\ntokens: 2B\n", "found both of steps and tokens"),
        ("tokens: many\n", "tokens: "),
        ("steps: 5\ngpus: 4\n", "gpus"),
        ("steps: 5\ndata: absent.bin\n", "data: found .*, which is not there"),
        ("steps: 5\narguments: [--checkpoint, x]\n", "found --checkpoint in arguments"),
        ("steps: 5\narguments: [--lr 1]\n", "which has a blank"),
        ("steps: 0\n", "steps"),
        ("steps: 5\nname: a b\n", "name"),
    ],
)
def test_a_job_that_cannot_be_used_is_told_by_file_and_field(
    words: str, message: str, tmp_path: Path
) -> None:
    path = put(tmp_path / "job.yaml", JOB + words)
    with pytest.raises(InstanceError, match=message) as error:
        read(path)
    assert str(path) in str(error.value)


def test_a_jobs_words_are_those_of_the_executor(tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(b"\0\0")
    job = read(put(tmp_path / "mine.yaml", JOB + "tokens: 1k\ndata: tokens.bin\n"))
    assert (job.name, job.total_steps) == ("mine", 2)
    words = job.words(tmp_path / "states", 7)
    told = dict(zip(words[::2], words[1::2], strict=True))
    assert told["--data"] == str(tmp_path / "tokens.bin")
    assert (told["--steps"], told["--every"]) == ("2", "7")
    assert job.save_every(30.0) == 20


# --- decisions -------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["frenzy_typed", "frenzy", "shortest_first"])
@pytest.mark.parametrize("seed", range(4))
def test_live_decisions_are_those_of_the_simulator(seed: int, policy: str) -> None:
    """An engine on which all goes as predicted does what the simulator says.

    Nothing is passed on from one decision to the next but records of attempts.
    """
    nodes = [("RTX2080Ti", 4), ("A100-40G", 4), ("A100-40G", 2), ("RTX6000", 1)]
    cluster = catalogue.cluster(nodes, 6.25)
    data = workloads.queue(8, seed, cluster, f"q{seed}", every_s=300)
    want = simulator.simulate(data, policy).schedule
    jobs = sorted(data.jobs, key=lambda job: micro(job.submit_s))
    renamed = {job.name: f"job-{n}" for n, job in enumerate(jobs, 1)}
    live = Live(data.model_copy(
        update={"jobs": tuple(job.model_copy(update={"name": renamed[job.name]})
                              for job in jobs)}), policy)  # fmt: skip
    live.run()
    for entry in want.jobs:
        mine = live.leases.get(renamed[entry.job], [])
        theirs = [(x.start_us, x.end_us, len(x.gpus)) for x in entry.leases]
        assert mine == theirs, entry.job


class Live:
    """A clock that jumps from event to event, and an engine without surprises."""

    def __init__(self, data: Data, policy: str) -> None:
        self.data, self.policy, self.now = data, policy, 0
        self.jobs = {job.name: job for job in data.jobs}
        self.entries: dict[str, Entry] = {}
        self.leases: dict[str, list[tuple[int, int, int]]] = {}
        self.ends: dict[str, int] = {}
        self.readies: dict[str, int] = {}

    def run(self) -> None:
        """Decide after each arrival and end, until there are no more."""
        coming = sorted((micro(job.submit_s), name) for name, job in self.jobs.items())
        while coming or self.ends:
            times = [*(t for t, _ in coming[:1]), *self.ends.values()]
            self.now = min(times)
            for name in [name for name, end in self.ends.items() if end == self.now]:
                self._ended(name, self.now)
            while coming and coming[0][0] == self.now:
                self._arrived(coming.pop(0)[1])
            self._decide()

    def _arrived(self, name: str) -> None:
        job = self.jobs[name]
        if self.data.refusal(job) is None:
            made = TrainingJob(
                **{"name": name, "model": job.model, "global_batch": job.batch},
                **{"sequence_length": 1, "steps": job.steps},
            )
            number = int(name.removeprefix("job-"))
            self.entries[name] = Entry(number, made, job.submit_s, "waiting", "")

    def _decide(self) -> None:
        entries = sorted(self.entries.values(), key=lambda entry: entry.number)
        if not entries:
            return
        names = {name_of(entry) for entry in entries}
        jobs = tuple(job for job in self.data.jobs if job.name in names)
        data = self.data.model_copy(update={"jobs": jobs})
        for key in ("rates", "_classes"):
            data.__dict__.pop(key, None)
        found = decide(data, entries, self.policy, self.now / MICRO, 0.0)
        for entry in found.stops:
            self._stopped(name_of(entry))
        for start in found.starts:
            self._started(start)

    def _started(self, start: deciding.Start) -> None:
        name = name_of(start.entry)
        entry = self.entries[name]
        given = self.data.assumptions
        ready = self.now + micro(given.restart_s if entry.attempts else given.launch_s)
        left = entry.job.total_steps - entry.done_steps
        trained = self.data.trained(self.jobs[name])
        step = self.data.rates.step_us(trained, *start.degrees, start.nodes)
        attempt = Attempt(
            **{"job": entry.number, "number": len(entry.attempts) + 1, "key": "k"},
            **{"nodes": start.nodes, "degrees": start.degrees, "why": ""},
            **{"from_step": entry.done_steps, "created": self.now / MICRO},
            **{"step_s": step / MICRO, "started": self.now / MICRO},
            **{"state": "running"},
        )
        self.readies[name] = ready
        self.entries[name] = replace(entry, attempts=(*entry.attempts, attempt))
        lease = self.now, -1, sum(start.nodes.values())
        self.leases.setdefault(name, []).append(lease)
        self.ends[name] = ready + left * step

    def _stopped(self, name: str) -> None:
        attempt = self.entries[name].attempts[-1]
        worked = max(0, self.now - self.readies[name])
        done = worked // round(attempt.step_s * MICRO)
        self._over(name, attempt.from_step + done)

    def _ended(self, name: str, now: int) -> None:
        self._over(name, self.entries[name].job.total_steps)
        del self.entries[name]

    def _over(self, name: str, step: int) -> None:
        entry, leases = self.entries[name], self.leases[name]
        del self.ends[name]
        start, _, gpus = leases[-1]
        leases[-1] = (start, self.now, gpus)
        over = replace(entry.attempts[-1], ended=self.now / MICRO, to_step=step)
        self.entries[name] = replace(entry, attempts=(*entry.attempts[:-1], over))


# --- engines ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "before", ["", "\x1b[36m(train pid=32417)\x1b[0m ", "[rank0] "]
)
def test_steps_are_read_of_logs_whatever_a_launcher_puts_before(
    before: str, tmp_path: Path
) -> None:
    lines = [
        f"{before}step {n}  loss 5.5  norm 1.0  lr 3.00e-04  {n / 10:.3f} s\n"
        for n in range(1, 6)
    ]
    log = put(tmp_path / "log.txt", "a library says so\n" + "".join(lines))
    assert following.read_log(log) == (5, pytest.approx(0.35))
    assert following.read_log(tmp_path / "none") == (None, None)


def test_a_job_in_parts_is_as_its_worst_part() -> None:
    def row(state: str) -> Any:
        return slurm._Row("1", state, "2026-01-02T03:04:05", "N/A", "k", "None")

    said = {
        ("RUNNING", "RUNNING"): "running",
        ("COMPLETED", "COMPLETED"): "done",
        ("COMPLETED", "FAILED"): "failed",
        ("NODE_FAIL", "RUNNING"): "lost",
        ("PENDING", "PENDING"): "waiting",
        ("CANCELLED", "CANCELLED"): "cancelled",
        ("TIMEOUT",): "lost",
    }
    for states, want in said.items():
        assert slurm._observe([row(state) for state in states]).state == want


def test_ray_counts_others_gpus_and_needs_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [
        {"name": "a", "gpus": 8.0, "free": 3.0, "type": "L40S"},
        {"name": "b", "gpus": 4.0, "free": 4.0, "type": "A100-80GB-SXM4"},
        {"name": "c", "gpus": 4.0, "free": 0.0, "type": None},
        {"name": "head", "gpus": 0, "free": 0, "type": "L40S"},
    ]
    monkeypatch.setattr(ray.Ray, "_ask", lambda self, do, **more: rows)
    found = ray.engine({}, Path()).machines({"a": 2})
    assert found.text == "a slots=8 type=L40S\nb slots=4 type=A100-80GB-SXM4\n"
    assert found.taken == {"a": 3}
    rows[:2] = []
    with pytest.raises(ray.EngineFailed, match="a label gpu-type"):
        ray.engine({}, Path()).machines({})


PROGRAM = """\
#!/bin/sh
trap 'echo saved > notice; exit 0' TERM
echo "$CUDA_VISIBLE_DEVICES $*" > told
if [ -e hold ]; then while :; do sleep 0.05; done; fi
exit "$(cat code 2> /dev/null || echo 0)"
"""


@pytest.fixture
def launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[local.Local, Launch, str]]:
    """Start a stand-in of the executor on this machine."""
    program = put(tmp_path / "python", PROGRAM)
    program.chmod(0o755)
    monkeypatch.setattr(local.sys, "executable", str(program))

    def launch(key: str, **files: str) -> tuple[local.Local, Launch, str]:
        folder = tmp_path / key
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        one = Launch(
            **{"key": key, "name": key, "folder": folder, "log": folder / "log.txt"},
            **{"nodes": {"n1": 2}, "devices": (3, 1), "words": ["--steps", "5"]},
            **{"port": 1, "is_own": True},
        )
        engine = local.Local(None)
        return engine, one, engine.launch(one)

    return launch


def ended(engine: local.Local, one: Launch, handle: str) -> Any:
    def look() -> Any:
        seen = engine.look({handle: one.folder})[handle]
        return seen if seen.state != "running" else None

    return awaited(look, "end of the process")


def test_a_process_of_this_machine_is_followed_to_its_end(
    launched: Callable[..., tuple[local.Local, Launch, str]],
) -> None:
    engine, one, handle = launched("good")
    assert engine.find(one) == handle
    assert ended(engine, one, handle).state == "done"
    words = (one.folder / "told").read_text().split()
    assert words == ["3,1", "-m", "hetopt", "run", "plan.json", "--steps", "5"]
    engine, one, handle = launched("bad", code="7")
    seen = ended(engine, one, handle)
    assert (seen.state, seen.why) == ("failed", "ended with exit code 7")


def test_a_process_that_is_killed_is_lost_and_one_that_is_asked_saves(
    launched: Callable[..., tuple[local.Local, Launch, str]],
) -> None:
    engine, one, handle = launched("killed", hold="")
    assert engine.look({handle: one.folder})[handle].state == "running"
    os.killpg(int(handle.partition(":")[0]), signal.SIGKILL)
    assert ended(engine, one, handle).state == "lost"
    engine, one, handle = launched("asked", hold="")
    awaited((one.folder / "told").exists, "word of the process")
    engine.end(handle)
    assert engine.look({handle: one.folder})[handle].state == "done"
    assert (one.folder / "notice").read_text() == "saved\n"


def test_devices_of_this_machine_are_given_once(tmp_path: Path) -> None:
    hosts = put(tmp_path / "hosts", "a slots=2 type=L40S\nb slots=3 type=L40S\n")
    engine, rng = local.Local(hosts), Random("devices")
    engine.machines({})
    held: list[int] = []
    for node in ("b", "a", "b"):
        given = engine.devices({node: 1}, held)
        assert not {*given} & {*held}
        assert {*given} <= ({0, 1} if node == "a" else {2, 3, 4})
        held += given
    with pytest.raises(local.EngineFailed, match="b: found 1 idle GPUs, expected 2"):
        engine.devices({"b": 2}, held)
    rng.shuffle(held)
    assert engine.devices({"a": 1, "b": 1}, held) == [1, 4]


SMI = """\
#!/bin/sh
case "$1" in
*index*)
  echo '0, GPU-a, NVIDIA L40S'
  echo '1, GPU-b, NVIDIA L40S'
  echo '2, GPU-c, NVIDIA A100-SXM4-80GB' ;;
*) printf 'GPU-b, 77\\n' ;;
esac
"""


def test_what_others_compute_on_is_not_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "nvidia-smi", SMI).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    engine = local.Local(None)
    found = engine.machines({})
    (first, second) = found.text.splitlines()
    assert first.endswith("slots=2 type=NVIDIA-L40S")
    assert second.endswith("slots=1 type=NVIDIA-A100-SXM4-80GB")
    node = first.split()[0]
    assert found.taken == {node: 1}
    assert not engine.machines({node: 1}).taken
    assert engine.devices({node: 1}, []) == [0]


def test_of_a_machine_one_type_goes_to_one_job() -> None:
    """Slurm gives a job no two types of GPUs of a machine."""
    kinds = [("RTX2080Ti", 2), ("A100-40G", 3), ("A100-40G", 4)]
    made = catalogue.cluster(kinds, 6.25)
    a, b, c = made.nodes
    parts = [one.model_copy(update={"machine": "m"}) for one in (a, b)]
    cluster = made.model_copy(update={"nodes": (*parts, c)})
    idle = {node.name: node.count for node in cluster.nodes}
    assert scheduler._together(cluster, idle) == {b.name: 3, c.name: 4}
    assert scheduler._together(cluster, {**idle, b.name: 1}) == {a.name: 2, c.name: 4}
    assert scheduler._together(cluster, dict.fromkeys(idle, 0)) == {}
