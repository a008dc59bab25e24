"""Elastic runs: ranks are killed or stopped, nodes leave and come back."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from made_plans import pipeline, stage
from small_instances import document

import hetopt
from hetopt.errors import RunFailed, Unsupported
from hetopt.plans import TrainingPlan
from hetopt.runtime import elastic, processes, supervisor
from hetopt.runtime.elastic import Elastic
from hetopt.runtime.jobs import Optimiser, Settings, job
from hetopt.schema import Instance
from hetopt.text.complaints import validated

Rows = list[dict[str, Any]]
TREE = document(
    "a=fast*3 b=slow*2 c=slow*1",
    {"fast": (1, 8), "slow": (0.5, 8)},
    model={"hidden": 32, "heads": 4, "vocabulary": 64}
    | {"gated": True, "kv_heads": 4, "intermediate": 48},
    rate=10,
    sequence_length=8,
    micro_batch_sizes=[1, 2],
)
DATA = validated(Instance, TREE, "instance")
TWO = [pipeline(4, 2, stage(0, 2, (2, "a:0")), stage(2, 4, (2, "a:1")))]
PLAN = validated(TrainingPlan, {"pipelines": TWO}, "plan")


@pytest.fixture(autouse=True)
def _little_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic, "DEFAULT_TIME_S", 0.2)


def settings(folder: Path, **more: Any) -> Settings:
    fields = {"steps": 8, "cpu": True, "precision": "fp64", "every": 2, **more}
    fields |= {"checkpoint": str(folder / "states"), "elastic": True}
    return Settings(**fields, optimiser=Optimiser(decay="none"))


def test_every_change_leads_to_a_plan_on_what_is_there(tmp_path: Path) -> None:
    random, file = Random("elastic"), tmp_path / "nodes"
    told: Rows = []
    site = Elastic(DATA, PLAN, settings(tmp_path, nodes=str(file)), None, told.append)
    counts = {node["name"]: node["count"] for node in TREE["cluster"]["nodes"]}  # type: ignore[index]
    there = {f"{name}:{i}" for name, n in counts.items() for i in range(n)}
    for number in range(16):
        if random.random() < 0.5 and len(there) > 1:
            lost = random.randrange(len(site.job.gpus))
            gone = site.home(lost)
            there.discard(gone)
            if not there:
                break
            assert gone in site.lose([lost], "gone")["lost"]
        else:
            names = random.sample(sorted(counts), random.randint(1, 3))
            file.write_text("\n".join([*names, f"# {number}"]))
            there = {g for g in there | _all(counts) if g.split(":")[0] in names}
            if site.is_better_left():
                site.move()
        homes = [site.home(rank) for rank in range(len(site.job.gpus))]
        assert there.issuperset(homes)
        assert len({*homes}) == len(homes) == len({*site.slots})
        assert {gpu.split(":")[0] for gpu in site.job.gpus} == {
            home.split(":")[0] for home in homes
        }
        saved = hetopt.check(tmp_path / "states" / elastic.PLAN)
        assert not saved.violations
    assert not told


def _all(counts: dict[str, int]) -> set[str]:
    return {f"{name}:{i}" for name, n in counts.items() for i in range(n)}


def test_without_a_plan_for_the_rest_the_run_ends(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("a:1\n")
    site = Elastic(DATA, PLAN, settings(tmp_path, nodes=str(file)))
    assert site.home(0) == "a:1"
    alone = Elastic(site.data, site.job.plan, settings(tmp_path))
    with pytest.raises(RunFailed, match="no plan for what is left: no GPU"):
        alone.lose([0], "it is gone")


def test_names_of_no_node_are_told(tmp_path: Path) -> None:
    file, told = tmp_path / "nodes", Rows()
    file.write_text("a\nz  # a typing error\nb:1\n")
    site = Elastic(DATA, PLAN, settings(tmp_path, nodes=str(file)), None, told.append)
    assert told == [{"unknown_nodes": ["z"]}]
    assert site.job.plan == job(DATA, PLAN, settings(tmp_path)).plan


def test_what_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="give --checkpoint"):
        hetopt.run(PLAN, DATA, steps=1, cpu=True, elastic=True)
    with pytest.raises(Unsupported, match="--elastic: add it"):
        hetopt.run(PLAN, DATA, steps=1, cpu=True, nodes="nodes")


# --- with processes ------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """The processes of all ranks; PyTorch is there."""
    pytest.importorskip("torch")
    found: list[subprocess.Popen[str]] = []
    start = subprocess.Popen

    def noted(*words: Any, **more: Any) -> Any:
        found.append(start(*words, **more))
        return found[-1]

    monkeypatch.setattr(processes.subprocess, "Popen", noted)
    return found


def assert_as_if_nothing_was(ran: supervisor.Ran, tmp_path: Path) -> None:
    """Losses and norms are those of a run that was left alone."""
    plain = settings(tmp_path / "plain", steps=len(ran.steps), every=100)
    whole = supervisor.run(job(DATA, PLAN, plain))
    for row, want in zip(ran.steps, whole.steps, strict=True):
        assert row["step"] == want["step"]
        assert row["loss"] == pytest.approx(want["loss"], rel=1e-10)
        assert row["norm"] == pytest.approx(want["norm"], rel=1e-10)


@pytest.mark.parametrize(
    "kind", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_a_run_goes_on_without_a_rank(
    started: list[Any], tmp_path: Path, kind: signal.Signals
) -> None:
    rows: Rows = []

    def hurt(row: dict[str, Any]) -> None:
        rows.append(row)
        if row.get("step") == 3 and len(started) == 2:
            os.kill(started[1].pid, kind)

    told = settings(tmp_path, timeout_s=10)
    site = Elastic(DATA, PLAN, told)
    ran = supervisor.run(site.job, hurt, site)
    change = ran.changes[0]
    assert (len(ran.changes), ran.restarts) == (1, 0)
    assert change["lost"] == ["a:1"]
    assert change["from_step"] >= 2
    assert change["recomputed"] <= told.every
    assert change in rows
    assert all(process.poll() is not None for process in started)
    assert_as_if_nothing_was(ran, tmp_path)


def test_every_loss_is_told_by_the_names_of_the_first_cluster(
    started: list[Any], tmp_path: Path
) -> None:
    """After the first loss the plan counts anew: a:1 is its a:0."""
    killed: list[str] = []
    since = [0]  # steps since the last change

    def hurt(row: dict[str, Any]) -> None:
        since[0] = since[0] + 1 if "step" in row else 0
        if since[0] != 2 or len(killed) == 2:
            return
        ranks = range(len(site.job.gpus))
        other = [r for r in ranks if site.home(r) != site.job.gpus[r]]
        rank = other[0] if killed else 0
        killed.append(site.home(rank))
        os.kill(started[len(started) - len(ranks) + rank].pid, signal.SIGKILL)

    site = Elastic(DATA, PLAN, settings(tmp_path, timeout_s=10))
    ran = supervisor.run(site.job, hurt, site)
    assert [change["lost"] for change in ran.changes] == [[name] for name in killed]
    assert killed[0] == "a:0"
    for change, name in zip(ran.changes, killed, strict=True):
        assert f"({name}) ended by signal 9" in change["reason"]


@pytest.mark.slow
def test_nodes_leave_and_come_with_notice(started: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    announced = ["c\n", "a\nb\nc\n"]
    steps = [0]  # so many after each change

    def announce(row: dict[str, Any]) -> None:
        if "step" not in row:
            steps.append(0)
            return
        steps[-1] += 1
        if steps[-1] == 2:
            if len(steps) > len(announced):
                raise KeyboardInterrupt
            file.write_text(announced[len(steps) - 1])

    site = Elastic(
        DATA, PLAN, settings(tmp_path, nodes=str(file), steps=10**6, every=10**6)
    )
    ran = supervisor.run(site.job, announce, site)
    first, second = ran.changes
    assert ran.interrupted
    assert first["lost"] == ["a:0", "a:1", "a:2", "b:0", "b:1"]
    assert second["arrived"] == first["lost"]
    assert first["ranks"] == 1
    # Whoever is told in time saves its states and does nothing twice.
    assert [change["recomputed"] for change in ran.changes] == [0, 0]
    assert_as_if_nothing_was(ran, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
@pytest.mark.slow
def test_a_stopped_rank_ends_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    place, told = tmp_path / "plan.json", tmp_path / "told"
    place.write_text(json.dumps({"instance": TREE, "plan": {"pipelines": TWO}}))
    words = [sys.executable, "-m", "hetopt", "run", str(place), "--cpu"]
    with told.open("w") as file:
        run = subprocess.Popen([*words, "--steps", "1000000"], stdout=file)
    try:
        while "step 2" not in told.read_text():
            assert run.poll() is None
            time.sleep(0.1)
        listed = ["ps", "-o", "pid=", "--ppid", str(run.pid)]
        out = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
        ranks = [int(pid) for pid in out.split()]
        assert len(ranks) == 2
        os.kill(ranks[0], signal.SIGSTOP)
    finally:
        run.kill()
        run.wait()
    for pid in ranks:
        while Path(f"/proc/{pid}").exists() and _state(pid) != "Z":
            time.sleep(0.1)


def _state(pid: int) -> str:
    """A process's state, by one letter; it may be gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
