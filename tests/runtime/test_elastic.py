"""Elastic runs: ranks are killed or stopped, and the others go on."""

import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from made_plans import pipeline, stage
from small_instances import document

import hetopt
from hetopt.errors import RunFailed, Unsupported
from hetopt.plans import TrainingPlan
from hetopt.runtime import elastic, supervisor
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


def test_every_loss_leads_to_a_plan_on_what_is_left(tmp_path: Path) -> None:
    random = Random("elastic")
    for _ in range(4):
        site = Elastic(DATA, PLAN, settings(tmp_path))
        counts = {node["name"]: node["count"] for node in TREE["cluster"]["nodes"]}  # type: ignore[index]
        there = {f"{name}:{i}" for name, n in counts.items() for i in range(n)}
        while there:
            ranks = range(len(site.names))
            lost = random.sample(ranks, random.randint(1, len(ranks)))
            gone = {site.names[rank] for rank in lost}
            there -= gone
            if not there:
                with pytest.raises(RunFailed, match="what is left: no GPU"):
                    site.lose(lost, "gone")
                break
            assert {*site.lose(lost, "gone")["lost"]} == gone
            assert there.issuperset(site.names)
            assert len({*site.names}) == len(site.job.gpus) == len({*site.slots})
            assert [gpu.split(":")[0] for gpu in site.job.gpus] == [
                name.split(":")[0] for name in site.names
            ]
            assert not hetopt.check(tmp_path / "states" / elastic.PLAN).violations


def test_what_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="give --checkpoint"):
        hetopt.run(PLAN, DATA, steps=1, cpu=True, elastic=True)


# --- with processes ------------------------------------------------------------------


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
        other = [r for r in ranks if site.names[r] != site.job.gpus[r]]
        rank = other[0] if killed else 0
        killed.append(site.names[rank])
        os.kill(started[len(started) - len(ranks) + rank].pid, signal.SIGKILL)

    site = Elastic(DATA, PLAN, settings(tmp_path, timeout_s=10))
    ran = supervisor.run(site.job, hurt, site)
    assert [change["lost"] for change in ran.changes] == [[name] for name in killed]
    assert killed[0] == "a:0"
    for change, name in zip(ran.changes, killed, strict=True):
        assert f"({name}) ended by signal 9" in change["reason"]
