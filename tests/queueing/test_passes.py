"""Passes over a queue: by the engine's records alone, and never a GPU given twice."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from command_line import document
from conftest import NODES, TINY
from disk import put
from stub_slurm import StubSlurm

from hetopt.api.judging import posed_training
from hetopt.queueing import scheduler
from hetopt.queueing.engines import slurm as slurm_engine
from hetopt.queueing.jobs import TrainingJob
from hetopt.queueing.scheduler import Queue
from hetopt.queueing.store import LIVE
from hetopt.runtime.jobs import Settings
from hetopt.runtime.jobs import job as run_of

Made = Callable[..., TrainingJob]
Opened = Callable[[], Queue]


def states(queue: Queue) -> dict[str, str]:
    return {entry.job.name: entry.state for entry in queue.store.entries()}


def few_layers(folder: Path, layers: int, hidden: int, intermediate: int) -> str:
    """The file of a large model's configuration."""
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden}
    heads = {"num_attention_heads": hidden // 128, "num_key_value_heads": hidden // 128}
    rest = {"intermediate_size": intermediate, "vocab_size": 32000}
    return str(put(folder / "large.json", {**TINY, **sizes, **heads, **rest}))


@pytest.mark.parametrize("cpu", [False, True])
def test_a_job_is_placed_followed_and_done(
    cpu: bool, slurm: StubSlurm, queue: Opened, job: Made
) -> None:
    """On CPUs, its steps are not held to what GPUs would take."""
    queue().submit([job(arguments=("--cpu",) if cpu else ())])
    queue().advance()
    (entry,) = queue().store.entries()
    assert entry.live.nodes in ({"nold1": 1}, {"nold2": 1})  # one GPU does, the weakest
    assert "1 × L40S of nold" in entry.why
    with slurm.state() as state:
        folder = Path(state["jobs"][0]["folder"])
    assert {"plan.json", "train.sh"} <= {path.name for path in folder.iterdir()}
    slurm.finish(1)
    told: list[str] = []
    queue().advance(told.append)
    (entry,) = queue().store.entries()
    assert (entry.state, entry.done_steps) == ("done", 20)
    assert "a is done: 0.5 s per step" in told[0]
    assert (told == ["a is done: 0.5 s per step on CPUs"]) == cpu
    assert entry.attempts[0].measured_s == pytest.approx(0.5)


@pytest.mark.parametrize("options", [(), ("framework=torchtitan",)], ids=str)
def test_a_queue_predicts_the_steps_that_its_executor_does(
    slurm: StubSlurm, queue: Opened, job: Made, options: tuple[str, ...]
) -> None:
    queue().submit([job(options=options)])
    queue().advance()
    (entry,) = queue().store.entries()
    assert entry.live is not None
    with slurm.state() as state:
        plan = Path(state["jobs"][0]["folder"], "plan.json")
    data, found = posed_training(plan, None)
    predicted = run_of(data, found, Settings(steps=1)).predicted_s
    assert entry.live.step_s == pytest.approx(predicted)
    assert f"{predicted:.3g} s per step" in entry.why


@pytest.mark.parametrize("seed", range(2))
def test_whatever_happens_all_jobs_end_and_no_gpu_is_given_twice(
    seed: int, slurm: StubSlurm, queue: Opened, job: Made
) -> None:
    """Random ends, failures, lost nodes and other people's jobs; no memory in between.

    The stub of Slurm would let a job wait that has no GPUs: none of ours ever does
    while nodes are up, and no node ever had more in use than there are.
    """
    rng, left = Random(f"queue {seed}"), [job(f"j{n}") for n in range(7)]
    queue().submit(left[:3])
    for turn in range(60):
        if turn == 2:
            queue().submit(left[3:])
        queue().advance()
        with slurm.state() as state:
            waiting = [one for one in state["jobs"] if one["state"] == "PENDING"]
            assert not waiting, "a job was given GPUs that are not idle"
            ours = [one for one in state["jobs"] if one["state"] == "RUNNING"]
        for one in ours:
            if one["key"] == "others":
                continue
            happens = rng.random()
            if happens < 0.5:
                slurm.finish(one["number"])
            elif happens < 0.6:
                slurm.finish(one["number"], "FAILED", step=rng.randint(1, 19))
            elif happens < 0.7:
                slurm.lose(rng.choice([*NODES]))
        for node in NODES:
            if rng.random() < 0.5:
                slurm.bring(node)
        with slurm.state() as state:
            _others(state, slurm, rng)
        if all(x.state not in LIVE for x in queue().store.entries()) and turn > 2:
            break
    assert set(states(queue()).values()) == {"done"}
    with slurm.state() as state:
        for node, (_, gpus) in NODES.items():
            assert state["most"].get(node, 0) <= gpus


def _others(state: Any, slurm: StubSlurm, rng: Random) -> None:
    """Somebody else's job on one idle GPU comes and goes."""
    for one in state["jobs"]:
        if one["key"] == "others" and rng.random() < 0.5:
            one["state"] = "COMPLETED"
    node = rng.choice([*NODES])
    idle = NODES[node][1] - slurm.used(state)[node]
    if state["nodes"][node]["up"] and idle and rng.random() < 0.5:
        row = {"number": len(state["jobs"]) + 1, "key": "others", "parts": [{node: 1}]}
        about = {"state": "RUNNING", "name": "x", "log": "", "args": []}
        state["jobs"].append(row | about)


def test_two_queues_at_once_do_not_place_twice(
    slurm: StubSlurm, queue: Opened, job: Made
) -> None:
    queue().submit([job(f"j{n}") for n in range(4)])
    place = str(queue().store.folder)
    words = [sys.executable, "-m", "hetopt", "queue", "--queue", place]
    several = [
        subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for one in several:
        errors = one.communicate()[1]
        assert one.returncode == 0, errors
    with slurm.state() as state:
        keys = [one["key"] for one in state["jobs"]]
    assert len(keys) == len(set(keys)) == 4
    assert all(len(entry.attempts) == 1 for entry in queue().store.entries())


@pytest.mark.parametrize("took", [True, False])
def test_a_submission_that_was_cut_off_is_found_or_made_again(
    took: bool,
    slurm: StubSlurm,
    queue: Opened,
    job: Made,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process ends before it could write that sbatch took the job, if it did."""
    made = queue()
    made.submit([job()])
    launch = made.engine.launch

    def cut_off(one: Any) -> str:
        if took:
            launch(one)
        raise KeyboardInterrupt

    monkeypatch.setattr(made.engine, "launch", cut_off)
    with pytest.raises(KeyboardInterrupt):
        made.advance()
    queue().advance()
    (entry,) = queue().store.entries()
    assert entry.live.handle == "1"
    assert entry.state == ("running" if took else "waiting")
    outcomes = [one.outcome for one in entry.attempts]
    assert outcomes == ([None] if took else ["lost", None])
    with slurm.state() as state:
        assert len(state["jobs"]) == 1


def test_what_the_engine_has_forgotten_is_told_by_the_states(
    slurm: StubSlurm, queue: Opened, job: Made
) -> None:
    queue().submit([job("whole"), job("half")])
    queue().advance()
    slurm.finish(1)
    slurm.finish(2, "NODE_FAIL", step=11)
    with slurm.state() as state:
        state["jobs"] = []
    told: list[str] = []
    queue().advance(told.append)
    whole, half = queue().store.entries()
    assert (whole.state, half.state) == ("done", "waiting")
    assert half.live.from_step == 11


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("", "step 4  loss 5.0"),
        ("hetopt: tokens.bin: absent\nsrun: error: n1: exited\n", "tokens.bin: absent"),
    ],
)
def test_a_failure_without_progress_ends_a_job_and_tells_its_last_words(
    log: str, reason: str, slurm: StubSlurm, queue: Opened, job: Made
) -> None:
    """The executor's reason, and not its launcher's words."""
    queue().submit([job(restarts=1)])
    queue().advance()
    slurm.finish(1, "FAILED", step=5)
    queue().advance()
    assert states(queue()) == {"a": "waiting"}
    slurm.finish(2, "FAILED", step=5)
    with slurm.state() as state:
        path = Path(state["jobs"][1]["log"])
    path.write_text(log * 3 or path.read_text())
    queue().advance()
    (entry,) = queue().store.entries()
    assert entry.state == "failed"
    assert "FAILED" in entry.why
    assert reason in entry.why
    assert "srun" not in entry.why


def test_what_fits_nothing_is_refused(
    slurm: StubSlurm, queue: Opened, job: Made, tmp_path: Path
) -> None:
    # 33 billion parameters in few layers, so that a search for a plan is short.
    large = few_layers(tmp_path, layers=10, hidden=16384, intermediate=44032)
    big = job("big", model=large, sequence_length=512)
    made = queue()
    (placed,) = made.placements([big]).places
    assert placed.refused
    assert placed.planned is None
    assert "no degrees of parallelism fit big" in placed.why
    made.submit([big])
    made.advance()
    (entry,) = made.store.entries()
    assert (entry.state, entry.why) == ("refused", placed.why)


def test_what_one_type_cannot_hold_gets_any_plan(
    slurm: StubSlurm, queue: Opened, job: Made, tmp_path: Path
) -> None:
    """No (d, t) of one type holds its states here; a pipeline of both types does."""
    large = few_layers(tmp_path, layers=10, hidden=12288, intermediate=36864)
    wide = job("wide", model=large, sequence_length=128)
    made = queue()
    made.submit([wide, job("small")])
    made.advance()
    entries = {entry.job.name: entry for entry in made.store.entries()}
    assert entries["small"].live is not None
    found = entries["wide"]
    if found.live is None:
        assert "it needs more GPUs than are idle" in found.why
        slurm.finish(1)
        made.advance()
        found = made.store.entry("wide")
    assert sum(found.live.nodes.values()) > 1


def test_cancelling_ends_the_attempt_and_no_other_job(
    slurm: StubSlurm, queue: Opened, job: Made
) -> None:
    queue().submit([job("a"), job("b")])
    queue().advance()
    queue().cancel("a")
    queue().advance()
    assert states(queue()) == {"a": "cancelled", "b": "running"}
    with slurm.state() as state:
        assert [one["state"] for one in state["jobs"]] == ["CANCELLED", "RUNNING"]


def test_who_is_stopped_by_the_policy_goes_on_where_it_was(
    slurm: StubSlurm, queue: Opened, job: Made
) -> None:
    """Shortest first: a long job leaves for a short one, and comes back."""
    with slurm.state() as state:
        for node in ("nfast", "nold2"):
            state["nodes"][node]["up"] = False
    made = queue()
    made = Queue(made.store, made.settings._replace(policy="shortest_first"))
    made.submit([job("long", steps=10**6)])
    made.advance()
    made.submit([job("short", steps=20), job("brief", steps=10)])
    told: list[str] = []
    made.advance(told.append)
    assert any("long leaves" in line for line in told)
    slurm.finish(1, "CANCELLED", step=100)
    told.clear()
    made.advance(told.append)
    entries = {entry.job.name: entry for entry in made.store.entries()}
    assert any("long left its GPUs: it goes on after step 100" in line for line in told)
    assert entries["brief"].live is not None
    for _ in range(4):
        with slurm.state() as state:
            running = [x for x in state["jobs"] if x["state"] == "RUNNING"]
        for one in running:
            if one["name"] != "long":
                slurm.finish(one["number"])
        made.advance()
    long = made.store.entry("long")
    assert long.live.from_step == 100


def test_a_job_whose_model_is_gone_waits_and_holds_up_no_other(
    slurm: StubSlurm, queue: Opened, job: Made, config: Path, tmp_path: Path
) -> None:
    other = put(tmp_path / "other.json", config.read_text())
    made = queue()
    made.submit([job("runs", model=str(other)), job("waits", model=str(other))])
    with slurm.state() as state:
        for node in ("nfast", "nold2"):
            state["nodes"][node]["up"] = False
        state["nodes"]["nold1"]["gpus"] = 1
    made.advance()
    assert states(made) == {"runs": "waiting", "waits": "waiting"}
    other.unlink()
    made.submit([job("good")])
    with slurm.state() as state:
        state["nodes"]["nold2"]["up"] = True
    told: list[str] = []
    made.advance(told.append)
    entries = {entry.job.name: entry for entry in made.store.entries()}
    assert entries["runs"].state == "running"
    assert entries["waits"].live is None
    assert "other.json" in entries["waits"].why
    assert entries["good"].live.nodes == {"nold2": 1}


def test_documents_and_a_dry_run_of_the_command_line(
    slurm: StubSlurm, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HETOPT_QUEUE", str(tmp_path / "live"))
    (tmp_path / "job.yaml").write_text(
        "model: tiny.json\nglobal_batch: 8\nsequence_length: 32\ntokens: 5k\n"
    )
    place = ["--engine", "slurm", "-o", "types=a100:A100-80GB-SXM4,l40s:L40S"]
    place += ["-o", "inter_gbytes_per_s=3"]
    job = str(tmp_path / "job.yaml")
    assert "found no queue" in document("queue", code=2)["error"]["message"]
    assert "no --engine" in document("submit", job, code=2)["error"]["message"]
    (tmp_path / "bad.yaml").write_text(
        (tmp_path / "job.yaml").read_text() + "lora_rank: 4\n"
    )
    bad = document("submit", job, str(tmp_path / "bad.yaml"), *place, code=2)
    assert "adapters" in bad["error"]["message"]
    assert not (tmp_path / "live").exists()
    dry = document("submit", job, *place, "--dry-run")["jobs"][0]
    assert sum(dry["nodes"].values()) == 4  # of its type all that are idle
    assert not (tmp_path / "live").exists()
    with slurm.state() as state:
        assert state["jobs"] == []
    made = document("submit", job, *place)
    assert made["engine"] == "slurm"
    assert made["jobs"][0]["steps"] == -(-5000 // (8 * 32))
    assert made["jobs"][0]["attempts"][0]["nodes"] == dry["nodes"]
    slurm.finish(1)
    assert document("queue")["jobs"][0]["state"] == "done"
    assert document("status", "job")["jobs"][0]["saved_step"] == 20
    assert "step 19" in document("logs", "1")["log"]
    assert "found it done" in document("cancel", "1", code=2)["error"]["message"]
    assert "unknown job" in document("status", "2", code=2)["error"]["message"]
    other = document("submit", job, "--engine", "local", code=2)
    assert "the queue there is of slurm" in other["error"]["message"]


def test_an_engine_that_is_not_there_is_told(
    queue: Opened, job: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = queue()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(scheduler.EngineFailed, match="scontrol: not found here; run"):
        made.submit([job()])


def test_gpus_without_a_type_that_others_hold_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A feature may name the card, which Slurm counts without its type all the same."""
    node = "NodeName=a Gres=gpu:4 GresUsed=gpu:3(IDX:0-2) State=MIXED CPUTot=8"
    text = f"{node} AvailableFeatures=l4\n"
    monkeypatch.setattr(slurm_engine, "output_of", lambda *_, **__: text)
    assert slurm_engine.Slurm({}).machines({}).taken == {"a": 3}
    assert slurm_engine.Slurm({}).machines({"a": 2}).taken == {"a": 1}
