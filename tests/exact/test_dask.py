"""One proof on a Dask cluster: the same boxes as by a process of our own."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from refuters import by_prices
from test_exact_training_plan import eight_gpus, ranges
from typer.testing import CliRunner

import hetopt
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.cli import app
from hetopt.errors import BackendMissing, SolverFailed
from hetopt.exact import training_plan
from hetopt.exact.pipelines import side_by_side
from hetopt.exact.pipelines.schedule import Schedule, Searching
from hetopt.problems import training_plan as judge
from hetopt.search import islands
from hetopt.solving import dask

NOWHERE = "tcp://127.0.0.1:9"


def test_without_dask_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(BackendMissing, match=r"pip install 'hetopt\[dask\]'"):
        hetopt.plan("tiny/two-nodes", limits=hetopt.Limits(dask=NOWHERE))


distributed = pytest.importorskip("distributed", reason="needs hetopt[dask]")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as made:
        yield made


def test_a_scheduler_that_does_not_answer_is_said_before_any_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dask, "PATIENCE_S", 1)
    words = ["plan", "tiny/two-nodes", "--exact", "--dask", NOWHERE]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 2
    assert f"--dask {NOWHERE}: found no scheduler" in told.stderr


def refuted(several: side_by_side.Processes | None, part: float = 0.3) -> Any:
    """The refutation of a time between bound and plan, by processes or by none."""
    instance = eight_gpus(3)
    plan = islands.plan(instance, seed=0, deadline=None)
    objective = int(judge.evaluate(instance, plan).objective)
    least = int(training_plan_bound(instance).value)
    bound = by_prices(instance, least, objective)
    time_us = least + int(part * (objective - least))
    refutation = bound.refute(time_us)
    if several is not None:
        refutation = side_by_side.SideBySide(bound, time_us, several)
    while refutation.step():
        pass
    return refutation


def test_boxes_of_a_cluster_are_those_of_one_process_and_derived_again(
    cluster: Any,
) -> None:
    with side_by_side.processes(1, cluster.scheduler_address) as several:
        assert several is not None
        assert len(several.executors) == 2
        beside = refuted(several)
        assert not refuted(several, 1.0).proved
    alone = refuted(None)
    assert beside.proved
    assert alone.proved
    assert ranges(beside.bound.first) == ranges(alone.bound.first)
    certificate, instance = beside.certificate(), beside.bound.instance
    bound = certificate.time_us + 1
    assert training_plan.recheck(instance, certificate, bound) == []
    assert training_plan.recheck(instance, certificate, 2 * bound) != []


def test_the_command_proves_by_a_cluster(cluster: Any, tmp_path: Path) -> None:
    out, address = tmp_path / "plan.json", cluster.scheduler_address
    words = ["plan", "hexiscale/setting-2-llama2-7b", "--exact", "--dask", address]
    told = CliRunner().invoke(app, [*words, "--time-limit", "12", "--out", str(out)])
    assert told.exit_code == 0, told.output
    assert hetopt.check_bound(out) == []


def test_a_case_that_kills_its_workers_is_lost(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker dies of every case, until the scheduler gives the case up."""
    monkeypatch.setattr(side_by_side, "settle", _dies)
    with (
        side_by_side.processes(1, cluster.scheduler_address) as several,
        pytest.raises(SolverFailed, match="a box was lost with its process"),
    ):
        refuted(several)


def _dies(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Losing(Executor):
    """Loses every case at once."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        lost = Future[Any]()
        lost.set_exception(CancelledError("its worker is gone"))
        return lost


class Lost(Executor):
    """Takes no case, as its process is lost."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        raise CancelledError("it is gone")


@pytest.mark.parametrize("executor", [Losing(), Lost()])
def test_a_lost_case_ends_the_proof_and_not_the_plan(
    monkeypatch: pytest.MonkeyPatch, executor: Executor
) -> None:
    @contextmanager
    def losing(*_: Any) -> Iterator[side_by_side.Processes]:
        yield side_by_side.Processes([executor] * 2, (CancelledError,))

    monkeypatch.setattr(side_by_side, "processes", losing)
    instance = hetopt.load("generated:unequal/16/2")
    schedule = Schedule(searching=Searching(unlimited_s=0.2))
    result = training_plan.solve(instance, limits=hetopt.Limits(), schedule=schedule)
    assert result.plan is not None
    assert result.bound == training_plan_bound(instance)
    (reason,) = result.reasons
    assert "a box was lost with its process" in reason
