"""Queues: the judge, one round's problem, the bound, traces and workloads."""

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from disk import put

from hetopt.errors import InstanceError, MixedData
from hetopt.files import load_problem
from hetopt.plans import Lease, Round, Schedule, ScheduledJob, Served
from hetopt.problems import job_round, job_scheduling
from hetopt.problems.job_scheduling import Assumptions, Data, Job
from hetopt.scheduling import bounds, catalogue, metrics, simulator, traces, workloads
from hetopt.schema import Cluster

CLUSTER = catalogue.cluster([("RTX2080Ti", 2), ("A100-40G", 2)], 5.0)
SECOND = 10**6


def queue(
    *jobs: tuple[str, int, int, float], cluster: Cluster = CLUSTER, **assumed: Any
) -> Data:
    """Jobs of (model, batch, steps, submission) on two nodes of two GPUs, or others."""
    names = {name for name, *_ in jobs}
    return Data(
        name="small",
        cluster=cluster,
        models={name: catalogue.job_model(name) for name in names},
        jobs=tuple(
            Job(name=f"j{i}", model=m, batch=b, samples=b * steps, submit_s=at)
            for i, (m, b, steps, at) in enumerate(jobs)
        ),
        assumptions=Assumptions(**assumed),
    )


def lease(
    start: int, end: int, *gpus: str, d: int = 1, t: int = 1, **more: bool
) -> Lease:
    held = {"start_us": start, "end_us": end, "gpus": gpus, **more}
    return Lease(data_parallel=d, tensor_parallel=t, **held)


def plan(*jobs: tuple[Lease, ...]) -> Schedule:
    return Schedule(
        jobs=tuple(ScheduledJob(job=f"j{i}", leases=x) for i, x in enumerate(jobs))
    )


def rules(data: Data, made: Schedule) -> set[str]:
    return {found.rule for found in job_scheduling.evaluate(data, made).violations}


def step_us(data: Data, d: int, t: int, held: dict[str, int]) -> int:
    return data.rates.step_us(data.trained(data.jobs[0]), d, t, held)


# --- the judge -------------------------------------------------------------------


def test_a_schedule_by_hand_has_the_objective_by_hand() -> None:
    data = queue(("bert-base", 4, 100, 0.0), ("bert-base", 4, 50, 10.0))
    step = step_us(data, 1, 1, {"node1": 1})
    first = 30 * SECOND + 100 * step
    second = 12 * SECOND + 30 * SECOND + 50 * step
    made = plan((lease(0, first, "node1:0"),), (lease(12 * SECOND, second, "node1:1"),))
    found = job_scheduling.evaluate(data, made)
    assert not found.violations
    assert found.objective == Fraction(first + second - 10 * SECOND, 2)
    assert found.parts["makespan_s"] == max(first, second) / SECOND


def test_an_interrupted_lease_keeps_whole_steps_only_and_restarts() -> None:
    data = queue(("bert-base", 4, 100, 0.0), restart_s=7)
    slow, fast = (step_us(data, 1, 1, {n: 1}) for n in ("node0", "node1"))
    stopped = 30 * SECOND + 40 * slow + slow // 2
    end = stopped + 7 * SECOND + 60 * fast
    leases = (lease(0, stopped, "node0:1"), lease(stopped, end, "node1:0"))
    assert rules(data, plan(leases)) == set()
    early = (leases[0], lease(stopped, end - fast, "node1:0"))
    assert rules(data, plan(early)) == {"work"}
    late = (leases[0], lease(stopped, end + 1, "node1:0"))
    assert rules(data, plan(late)) == {"work"}


def test_a_restart_that_is_shorter_than_a_launch_is_within_the_bounds() -> None:
    """A first lease of 1 us does nothing, and makes the next one a restart."""
    data = queue(("bert-base", 4, 100, 0.0), launch_s=30, restart_s=0)
    step = step_us(data, 1, 1, {"node1": 1})
    made = plan((lease(0, 1, "node1:0"), lease(1, 1 + 100 * step, "node1:0")))
    found = job_scheduling.evaluate(data, made)
    assert not found.violations
    assert found.objective == 1 + 100 * step
    for bound in (bounds.alone(data), bounds.one_machine(data)):
        assert bound.value <= found.objective


def slow_type() -> Data:
    """Two types that differ in speed alone."""
    data = queue(("bert-base", 4, 10, 0.0))
    tree = data.model_dump(mode="json")
    gpus = tree["cluster"]["gpus"]
    first, second = gpus["RTX2080Ti"], gpus["A100-40G"]
    first |= second | {"efficiency": 0.01}
    return Data.model_validate_json(json.dumps(tree))


def test_the_slowest_type_of_a_lease_is_the_one_that_takes_longest() -> None:
    data = slow_type()
    alone = [step_us(data, 2, 1, {node: 2}) for node in ("node0", "node1")]
    assert alone[0] > 2 * alone[1]
    assert step_us(data, 2, 1, {"node0": 1, "node1": 1}) >= alone[0] // 2
    assert step_us(data, 2, 1, {"node1": 1, "node0": 1}) > 2 * alone[1]
    made = plan((whole(data, "node1:0", "node1:1", d=2),))
    found = job_scheduling.evaluate(data, made)
    assert not found.violations
    assert bounds.alone(data).value <= found.objective


def whole(data: Data, *gpus: str, start: int = 0, d: int = 1, t: int = 1) -> Lease:
    """The lease that does all of the first job's work."""
    held = Counter(gpu.partition(":")[0] for gpu in gpus)
    end = start + 30 * SECOND + data.jobs[0].steps * step_us(data, d, t, dict(held))
    return lease(start, end, *gpus, d=d, t=t)


def test_every_broken_rule_is_named() -> None:
    data = queue(("bert-base", 4, 10, 5.0))
    good = whole(data, "node1:0", start=5 * SECOND)
    assert rules(data, plan((good,))) == set()
    wider = good.model_copy(update={"data_parallel": 2})
    broken: dict[str, Schedule] = {
        "submitted": plan((whole(data, "node1:0", start=4 * SECOND),)),
        "unknown_gpu": plan((good.model_copy(update={"gpus": ("node1:2",)}),)),
        "time": plan((good.model_copy(update={"end_us": good.start_us}),)),
        "work": plan(()),
        "unknown_job": Schedule(
            jobs=(*plan((good,)).jobs, ScheduledJob(job="nobody", leases=(good,)))
        ),
        "every_job_once": Schedule(jobs=plan((good,)).jobs * 2),
        "refused": Schedule(jobs=(ScheduledJob(job="j0", refused="no"),)),
        "one_lease_at_a_time": plan((good, whole(data, "node1:1", start=6 * SECOND))),
        "no_gpu_twice": plan((lease(0, 9, "node1:0", "node1:0", d=2),)),
        "trial": plan((lease(5 * SECOND, 6 * SECOND, "node1:0", trial=True), good)),
    }
    for rule, made in broken.items():
        assert rule in rules(data, made), rule
    three = ("node0:0", "node0:1", "node1:0")  # no divisor of the batch, no power of 2
    for wrong in (lease(0, 9, *three, d=3), lease(0, 9, *three, t=3), wider):
        assert "degrees" in rules(data, plan((wrong,)))


def test_one_gpu_held_by_two_jobs_is_named_with_the_overlap() -> None:
    data = queue(("bert-base", 4, 10, 0.0), ("bert-base", 4, 10, 0.0))
    one = whole(data, "node1:0")
    for shift, wrong in ((0, True), (one.end_us - 1, True), (one.end_us, False)):
        two = whole(data, "node1:0", start=shift)
        assert ("no_gpu_twice" in rules(data, plan((one,), (two,)))) is wrong


def test_memory_must_fit_a_lease_and_must_not_fit_a_trial() -> None:
    data = queue(("gpt2-xl", 2, 10, 0.0), trial_s=20)
    assert rules(data, plan((whole(data, "node0:0"),))) == {"memory"}
    fits = whole(data, "node1:0", "node1:1", start=20 * SECOND, t=2)
    trial = lease(0, 20 * SECOND, "node0:0", trial=True)
    assert rules(data, plan((trial, fits))) == set()
    wrong = lease(0, 20 * SECOND, "node1:0", "node1:1", t=2, trial=True)
    assert "memory" in rules(data, plan((wrong, fits)))


def test_a_job_that_can_never_fit_is_refused_with_the_reason() -> None:
    data = queue(("gpt2-7b", 2, 10, 0.0), ("bert-base", 4, 10, 0.0))
    why = data.refusal(data.jobs[0])
    assert "it needs at least 72.4 GiB on each GPU" in why
    run = simulator.simulate(data, "frenzy")
    assert run.schedule.jobs[0].refused == why
    assert rules(data, run.schedule) == set()
    first = ScheduledJob(job="j0", leases=(lease(0, 9, "node1:0"),))
    accepted = Schedule(jobs=(first, *run.schedule.jobs[1:]))
    assert "refused" in rules(data, accepted)


def test_a_queue_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    good = queue(("bert-base", 4, 10, 0.0)).model_dump(mode="json")
    wrong = {
        "trains unknown model 'x', expected one of bert-base": {"model": "x"},
        "asks for 9 GPUs, the cluster has 4: lower it": {"gpus": 9},
        "submit_s: found -1": {"submit_s": -1},
        "batch: found 0": {"batch": 0},
    }
    for message, change in wrong.items():
        path = tmp_path / "queue.json"
        path.write_text(json.dumps({**good, "jobs": [{**good["jobs"][0], **change}]}))
        with pytest.raises(InstanceError) as caught:
            load_problem(path)
        assert message in str(caught.value)
    path.write_text(json.dumps({**good, "jobs": good["jobs"] * 2}))
    with pytest.raises(InstanceError, match="jobs of one name: 'j0': rename all but"):
        load_problem(path)


# --- one round -------------------------------------------------------------------


def test_the_judge_of_rounds_names_what_is_broken() -> None:
    data = job_round.Data(
        classes=(
            job_round.JobClass(
                name="c",
                jobs=1,
                unserved=9,
                configurations=(job_round.Configuration(gpu="A", gpus=2, cost=1),),
            ),
        ),
        slots=(
            job_round.Slots(gpu="A", size=1, gpus=3),
            job_round.Slots(gpu="A", size=2, gpus=2),
        ),
    )
    cases = {
        "unknown_class": Served(job_class="x", gpu="A", gpus=2, jobs=1),
        "unknown_configuration": Served(job_class="c", gpu="A", gpus=1, jobs=1),
        "each_job_once": Served(job_class="c", gpu="A", gpus=2, jobs=2),
        "slots": Served(job_class="c", gpu="A", gpus=2, jobs=2),
    }
    for rule, served in cases.items():
        found = job_round.evaluate(data, Round(served=(served,)))
        assert rule in {v.rule for v in found.violations}
    assert job_round.evaluate(data, Round(served=())).objective == 9


# --- the bound -------------------------------------------------------------------


def test_no_policy_beats_the_bound_and_a_lone_job_reaches_it() -> None:
    for seed in (0, 2, 5):
        data = workloads.queue(8, seed, CLUSTER, "q", every_s=60.0 * seed)
        bound, _ = bounds.bound(data)
        for policy in ("frenzy", "opportunistic", "sia"):
            made = simulator.simulate(data, policy).schedule
            found = job_scheduling.evaluate(data, made)
            assert not found.violations
            assert bound.value <= found.objective
    node = catalogue.cluster([("A100-40G", 2)], 5.0)
    lone = queue(("bert-base", 4, 1000, 0.0), cluster=node)
    made = simulator.simulate(lone, "sia", rounds=False).schedule
    reached = job_scheduling.evaluate(lone, made).objective
    assert reached == bounds.alone(lone).value


def test_shortest_remaining_work_first_has_the_least_sum_in_small_steps() -> None:
    """Against the best of all preemptive schedules in unit steps, by trying all."""
    random = Random("srpt")
    for _ in range(60):
        jobs = tuple((random.randint(0, 4), random.randint(1, 3)) for _ in range(3))
        assert bounds._least_sum([*jobs]) == least_sum_in_steps(jobs, 0)


def least_sum_in_steps(jobs: tuple[tuple[int, int], ...], now: int) -> int:
    """Sum of completions when in each unit of time one job, or none, is worked on."""
    if not any(work for _, work in jobs):
        return 0
    ready = [i for i, (release, work) in enumerate(jobs) if work and release <= now]
    if not ready:
        return least_sum_in_steps(jobs, now + 1)
    values = []
    for i in ready:
        release, work = jobs[i]
        rest = (*jobs[:i], (release, work - 1), *jobs[i + 1 :])
        values.append((now + 1 if work == 1 else 0) + least_sum_in_steps(rest, now + 1))
    return min(values)


# --- metrics ---------------------------------------------------------------------


def test_metrics_of_a_schedule_by_hand() -> None:
    data = queue(("bert-base", 4, 100, 0.0), ("bert-base", 4, 100, 0.0))
    one = whole(data, "node1:0")
    two = whole(data, "node1:0", start=one.end_us)
    found = metrics.measure(data, plan((one,), (two,)), (0.1, 0.3, 0.2))
    seconds = one.end_us / SECOND
    assert found.average_completion_s == pytest.approx(1.5 * seconds)
    assert found.p99_completion_s == pytest.approx(2 * seconds)
    assert found.average_queueing_s == pytest.approx(0.5 * seconds)
    assert found.makespan_s == pytest.approx(2 * seconds)
    assert found.utilisation == pytest.approx({"RTX2080Ti": 0.0, "A100-40G": 0.5})
    assert found.samples_per_second == pytest.approx(800 / (2 * seconds))
    assert (found.decision_median_s, found.decision_p99_s) == (0.2, 0.3)


def test_waiting_and_completion_are_those_of_a_clock_in_microseconds() -> None:
    """Odd microseconds, many leases: nobody waits for less than nothing."""
    data = workloads.queue(40, 7, CLUSTER, "q", every_s=1.7)
    for policy in ("frenzy", "opportunistic", "sia"):
        schedule = simulator.simulate(data, policy).schedule
        found = metrics.times(data, schedule)
        submitted = {job.name: job.submit_s for job in data.jobs}
        waits, ends = [], []
        for entry in schedule.jobs:
            now = Fraction(str(submitted[entry.job])) * SECOND
            ends.append(entry.leases[-1].end_us - now)
            wait = Fraction(0)
            for one in entry.leases:
                wait, now = wait + one.start_us - now, Fraction(one.end_us)
            waits.append(wait)
            assert 0 <= found[entry.job].queueing_us == wait
        measured = metrics.measure(data, schedule).to_json()
        for word, values in (("queueing", waits), ("completion", ends)):
            assert measured[f"average_{word}_s"] == pytest.approx(
                float(np.mean(values) / SECOND)
            )
            for percent in (50, 90, 99):
                rank = np.percentile(values, percent, method="inverted_cdf")
                assert measured[f"p{percent}_{word}_s"] == pytest.approx(
                    float(rank / SECOND)
                )


# --- traces and workloads --------------------------------------------------------


def trace(folder: Path, text: str) -> Path:
    return put(folder / "trace.csv", text)


def test_a_trace_by_durations_becomes_jobs_of_as_many_gpu_hours(tmp_path: Path) -> None:
    path = trace(tmp_path, "submit_s,duration_s,gpus,vc\n100,1800,1,3\n160,7200,2,3\n")
    data = traces.queue(path, catalogue.simulator(), "t")
    assert [job.submit_s for job in data.jobs] == [0, 60]
    assert [job.model for job in data.jobs] == ["bert-base", "gpt2"]
    assert [job.gpus for job in data.jobs] == [1, 2]
    for job, hours in zip(data.jobs, (0.5, 4.0), strict=True):
        options = data.rates.options(data.trained(job))
        gpu_us = job.steps * min(o.step_us * o.gpus for o in options)
        assert gpu_us / 3.6e9 == pytest.approx(hours, rel=0.01)


def test_a_trace_by_models_knows_image_models_and_ours(tmp_path: Path) -> None:
    head = "set,job,submit_s,model,gpus,batch,duration_s\n"
    rows = "a,x,0,cifar10,1,128,\na,x,1,imagenet,4,200,\nb,y,2,gpt2,2,4,3600\n"
    path = trace(tmp_path, head + rows)
    data = traces.queue(path, catalogue.simulator(), "t")
    assert [job.model for job in data.jobs] == ["bert-base", "gpt2-xl", "gpt2"]
    assert [job.name for job in data.jobs] == ["x", "x#1", "y"]
    assert data.jobs[2].batch == 4
    some = traces.Sample(where={"set": "b"})
    only = traces.queue(
        trace(tmp_path, head + rows), catalogue.simulator(), "t", sample=some
    )
    assert [job.name for job in only.jobs] == ["y"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("submit_s,duration_s,gpus\n-5,10,1\n", 'line 2: submit_s: found "-5", exp'),
        ("submit_s,duration_s,gpus\n5,-1,1\n", 'line 2: duration_s: found "-1", exp'),
        ("submit_s,duration_s,gpus\n5,nan,1\n", 'line 2: duration_s: found "nan"'),
        ("submit_s,duration_s,gpus\n5,1\n", "found no jobs but 1 without GPUs"),
        ("submit_s,duration_s,gpus\n5,1,64\n", "gpus: found 64, expected at most 44"),
        ("submit_s,duration_s\n5,1\n", "found the columns submit_s, duration_s, exp"),
        ("submit_s,duration_s,gpus\n", "found no jobs, expected one a line; add some"),
        ("", "found the columns none, expected gpus, submit_s and one of model"),
        (
            "submit_s,model,gpus,batch\n5,gtp2,1,8\n",
            'line 2: model: found "gtp2", expected one of ncf, cifar10, bert',
        ),
        ("submit_s,model,gpus,batch\n5,ncf,1,x\n", 'batch: found "x", expected a who'),
    ],
)
def test_a_bad_trace_is_refused_with_line_column_and_remedy(
    tmp_path: Path, text: str, message: str
) -> None:
    path = trace(tmp_path, text)
    with pytest.raises(InstanceError) as caught:
        traces.queue(path, catalogue.simulator(), "t")
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert ";" in str(caught.value)


def test_a_choice_of_rows_needs_its_column_and_a_limit_some_job(tmp_path: Path) -> None:
    path = trace(tmp_path, "submit_s,duration_s,gpus\n5,1,8\n")
    with pytest.raises(InstanceError, match="expected gpus, set, submit_s"):
        traces.read(path, {"set": "a"})
    with pytest.raises(InstanceError, match="found no job of at most 4 GPUs"):
        traces.queue(
            path, catalogue.simulator(), "t", sample=traces.Sample(most_gpus=4)
        )


def test_submissions_are_scaled_to_the_load_asked_for(tmp_path: Path) -> None:
    lines = [f"{60 * i},{600 + 37 * i},{1 + i % 4}" for i in range(50)]
    path = trace(tmp_path, "submit_s,duration_s,gpus\n" + "\n".join(lines))
    for load in (0.3, 1.0, 2.5):
        data = traces.queue(
            path, catalogue.simulator(), "t", sample=traces.Sample(load=load, jobs=30)
        )
        assert len(data.jobs) == 30
        assert traces.offered_load(data) == pytest.approx(load, rel=1e-3)


def test_the_same_seed_gives_the_same_queue_and_another_seed_another() -> None:
    one = workloads.queue(30, 3, catalogue.simulator(), "q")
    assert one.digest == workloads.queue(30, 3, catalogue.simulator(), "q").digest
    assert one.digest != workloads.queue(30, 4, catalogue.simulator(), "q").digest
    assert len({(job.model, job.batch) for job in one.jobs}) > 5
    assert all(one.refusal(job) is None for job in one.jobs)


def test_a_problem_file_of_something_else_is_no_queue(tmp_path: Path) -> None:
    from hetopt.api import scheduling

    path = tmp_path / "round.json"
    idle = job_round.JobClass(name="c", jobs=1, unserved=9, configurations=())
    slots = (job_round.Slots(gpu="A", size=1, gpus=1),)
    path.write_text(job_round.Data(classes=(idle,), slots=slots).model_dump_json())
    with pytest.raises(MixedData, match="found a problem 'job_round'"):
        scheduling.schedule(path)
