"""Policies and the simulator: whatever they do, the judge accepts it and knows it."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from command_line import said
from test_job_scheduling import queue

from hetopt import registry
from hetopt.api import scheduling
from hetopt.costs.marp import capacity
from hetopt.errors import NoPlan
from hetopt.exact import job_round as exact_round
from hetopt.files import load_problem
from hetopt.problems import job_scheduling
from hetopt.problems.job_scheduling import Assumptions, Data, Job
from hetopt.report import gantt
from hetopt.scheduling import catalogue, simulator, workloads
from hetopt.scheduling.idle import Idle
from hetopt.scheduling.policies import _rounds, frenzy, frenzy_typed, opportunistic
from hetopt.solving import statements

POLICIES = registry.names("scheduling.policies")
SMALL = catalogue.cluster(
    [("RTX2080Ti", 4), ("A100-40G", 4), ("A100-40G", 2), ("RTX6000", 1)], 6.25
)


def random_queue(seed: int, jobs: int = 10) -> Data:
    """Jobs on an uneven cluster, from idle to crowded; short trials and rounds."""
    random = Random(f"queue {seed}")
    made = workloads.queue(
        jobs, seed, SMALL, f"q{seed}", every_s=random.choice([0, 60, 900])
    )
    assumptions = Assumptions(
        launch_s=random.choice([0, 30]),
        restart_s=random.choice([0, 60]),
        trial_s=random.choice([1, 120]),
        round_s=random.choice([60, 1000]),
        efficiency=random.choice(["per_gpu", "throughput"]),
    )
    return made.model_copy(update={"assumptions": assumptions})


@pytest.mark.parametrize("rounds", [None, True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_judge_accepts_every_schedule_of_every_policy(
    policy: str, rounds: bool | None
) -> None:
    for seed in range(2):
        data = random_queue(seed)
        run = simulator.simulate(data, policy, rounds=rounds)
        assert simulator.simulate(data, policy, rounds=rounds).schedule == run.schedule
        found = job_scheduling.evaluate(data, run.schedule)
        assert not found.violations, (seed, found.violations[:3])
        assert len(run.decision_s) > 0
        if rounds:
            length = job_scheduling.micro(data.assumptions.round_s)
            leases = [lease for entry in run.schedule.jobs for lease in entry.leases]
            assert all(lease.start_us % length == 0 for lease in leases)


@pytest.mark.parametrize("policy", ["frenzy", "frenzy_typed", "opportunistic"])
def test_what_works_on_events_never_interrupts_a_job(policy: str) -> None:
    for seed in range(4):
        for entry in simulator.simulate(random_queue(seed), policy).schedule.jobs:
            assert [lease.trial for lease in entry.leases[:-1]] == [True] * (
                len(entry.leases) - 1
            )
            if policy != "opportunistic":
                assert len(entry.leases) == 1


# --- HAS -------------------------------------------------------------------------


def has_as_printed(
    idle: dict[str, int], size: dict[str, int], gpus: int, need: int
) -> dict[str, int] | None:
    """Lines 13 to 37 of algorithm 1, with >= for >, on nodes with idle GPUs."""
    idle = dict(idle)
    if sum(n for node, n in idle.items() if size[node] >= need) < gpus:
        return None
    given: dict[str, int] = {}
    while gpus > 0:
        fit = min(size[node] for node, n in idle.items() if n and size[node] >= need)
        nodes = sorted((n, -size[node], node) for node, n in idle.items())
        nodes = [row for row in nodes if row[0] and size[row[2]] >= fit]
        # Among as many idle GPUs, the least memory that suffices: ours, see `frenzy`.
        enough = [(n, -rank, node) for n, rank, node in nodes if n >= gpus]
        if enough:
            _, _, node = min(enough)
            given[node], gpus = gpus, 0
        else:
            count, _, node = nodes[-1]
            given[node], idle[node] = count, 0
            gpus -= count
    return given


def test_best_fit_takes_from_nodes_as_full_as_the_algorithm_does() -> None:
    """Equal nodes may differ by name; how many GPUs come from which kind may not."""
    for seed in range(400):
        random = Random(f"has {seed}")
        kinds = ["RTX2080Ti", "A100-40G", "A100-80G"]
        nodes = [(random.choice(kinds), random.randint(1, 8)) for _ in range(6)]
        cluster = catalogue.cluster(nodes, 5.0)
        size = {n.name: capacity(cluster.gpus[n.gpu]) for n in cluster.nodes}
        idle = Idle(cluster, lambda gpu, c=cluster: capacity(c.gpus[gpu]))
        for node in cluster.nodes:
            idle.take(node.name, random.randint(0, node.count))
        free = {node.name: idle.on(node.name) for node in cluster.nodes}
        need, gpus = random.choice([1, 20 * 2**30, 60 * 2**30]), random.randint(1, 20)
        enough = [kind for kind in idle.kinds if kind >= need]
        held = idle.best_fit(enough, gpus)
        want = has_as_printed(free, size, gpus, need)
        assert (held is None) == (want is None)
        if held is not None and want is not None:
            assert shape(held, free, size) == shape(want, free, size)
        assert {node.name: idle.on(node.name) for node in cluster.nodes} == free


def shape(
    held: dict[str, int], free: dict[str, int], size: dict[str, int]
) -> Counter[tuple[int, int, int]]:
    return Counter((size[node], free[node], n) for node, n in held.items())


def partly_idle(data: Data, kinds: Any, seed: int) -> Idle:
    """The cluster of a queue, with some GPUs of each node taken."""
    random, idle = Random(seed), Idle(data.cluster, kinds)
    for node in data.cluster.nodes:
        idle.take(node.name, random.randint(0, node.count))
    return idle


def test_has_takes_the_first_plan_that_idle_gpus_serve() -> None:
    for seed in range(8):
        data = random_queue(seed)
        policy, idle = frenzy.policy(data), partly_idle(data, frenzy.kinds(data), seed)
        for job in data.jobs:
            trained = data.trained(job)
            found: Any = policy.place(trained, idle)
            for option in frenzy.rank(data, trained):
                degrees = option.data_parallel, option.tensor_parallel
                room = sum(
                    idle.on(node.name)
                    for node in data.cluster.nodes
                    if data.rates.fits(trained, node.gpu, *degrees)
                )
                if room >= option.gpus:
                    wanted, held = found
                    assert (wanted.data_parallel, wanted.tensor_parallel) == degrees
                    assert sum(held.values()) == option.gpus
                    break
            else:
                assert found is None


def test_with_a_type_has_takes_the_first_plan_whose_own_type_is_idle() -> None:
    for seed in range(8):
        data = random_queue(seed)
        policy = frenzy_typed.policy(data)
        idle = partly_idle(data, frenzy_typed.kinds(data), seed)
        free: Counter[str] = Counter()
        for node in data.cluster.nodes:
            free[node.gpu] += idle.on(node.name)
        for job in data.jobs:
            trained = data.trained(job)
            found = policy.place(trained, idle)
            ranking = sorted(
                data.rates.options(trained),
                key=lambda o: (o.step_us, o.gpus, o.tensor_parallel, o.gpu),
            )
            first = next((o for o in ranking if free[o.gpu] >= o.gpus), None)
            assert (found is None) == (first is None)
            if found is not None and first is not None:
                wanted, held = found
                degrees = wanted.data_parallel, wanted.tensor_parallel
                assert degrees == (first.data_parallel, first.tensor_parallel)
                assert {data.cluster.node[n].gpu for n in held} == {first.gpu}
                assert sum(held.values()) == first.gpus


def test_marps_ranking_follows_the_efficiency_that_the_assumptions_name() -> None:
    data = load_problem("frenzy/simulator-30")[1]
    for word in ("per_gpu", "throughput"):
        changed = data.assumptions.model_copy(update={"efficiency": word})
        asked = data.model_copy(update={"assumptions": changed})
        for job in asked.jobs:
            ranked = frenzy.rank(asked, asked.trained(job))
            paid = [o.step_us * (o.gpus if word == "per_gpu" else 1) for o in ranked]
            assert paid == sorted(paid)


def test_a_later_job_passes_one_that_cannot_be_served() -> None:
    cluster = catalogue.cluster([("A100-40G", 2)], 5.0)
    others = ("gpt2-xl", 1, 100, 1.0), ("bert-base", 1, 100, 2.0)
    data = queue(("bert-base", 1, 90_000, 0.0), *others, cluster=cluster)
    one, two = (
        {e.job: e.leases[0].start_us for e in simulator.simulate(data, p).schedule.jobs}
        for p in ("frenzy", "opportunistic")
    )
    large, small = (job.name for job in data.jobs[1:])
    assert min(o.gpus for o in data.rates.options(data.trained(data.jobs[1]))) == 2
    assert one[small] < one[large]
    assert two[small] >= two[large]


# --- opportunistic ---------------------------------------------------------------


def test_opportunistic_tries_more_tensor_parallelism_then_more_gpus() -> None:
    cluster = catalogue.cluster([("RTX2080Ti", 8)], 5.0)
    model = {"gpt2-medium": catalogue.job_model("gpt2-medium")}
    job = Job(name="j", model="gpt2-medium", batch=8, samples=80, submit_s=0, gpus=2)
    data = Data(name="q", cluster=cluster, models=model, jobs=(job,))
    (entry,) = simulator.simulate(data, "opportunistic").schedule.jobs
    tried = [(x.data_parallel, x.tensor_parallel) for x in entry.leases]
    assert tried == [(2, 1), (1, 2), (4, 1), (2, 2)]
    fits = [data.rates.fits(data.trained(job), "RTX2080Ti", *x) for x in tried]
    assert fits == [False, False, False, True]
    assert [lease.trial for lease in entry.leases] == [True, True, True, False]


def test_opportunistic_takes_the_strongest_type_with_enough_idle_gpus() -> None:
    data = random_queue(2)
    assert opportunistic.ordered(data) == ["A100-40G", "RTX6000", "RTX2080Ti"]
    job = Job(name="j", model="bert-base", batch=16, samples=160, submit_s=0, gpus=4)
    models = {"bert-base": catalogue.job_model("bert-base")}
    twice = (job, job.model_copy(update={"name": "k"}))
    both = Data(name="q", cluster=SMALL, models=models, jobs=twice)
    one, two = simulator.simulate(both, "opportunistic").schedule.jobs
    assert {gpu.partition(":")[0] for gpu in one.leases[0].gpus} == {"node1"}
    assert {gpu.partition(":")[0] for gpu in two.leases[0].gpus} == {"node0"}


def test_opportunistic_serves_every_job_that_fits_whatever_its_user_asks() -> None:
    for gpus in (1, 3, 5, 11):
        data = random_queue(gpus)
        jobs = tuple(job.model_copy(update={"gpus": gpus}) for job in data.jobs)
        asked = data.model_copy(update={"jobs": jobs})
        made = simulator.simulate(asked, "opportunistic").schedule
        assert not job_scheduling.evaluate(asked, made).violations


# --- rounds ----------------------------------------------------------------------


def test_sias_program_and_the_exact_round_agree_on_every_round_of_a_queue() -> None:
    data = random_queue(3, jobs=14)
    seen: list[Any] = []

    def solve(round_: Any) -> Any:
        seen.append(round_)
        return exact_round.solve(round_).plan

    policy = _rounds.RoundPolicy(data, solve)
    idle = Idle(data.cluster, _rounds.kinds(data))
    length = job_scheduling.micro(data.assumptions.round_s)
    simulator.Simulation(data, policy, idle).run(length)
    assert len(seen) > 10
    for round_ in seen[::4]:
        sia = statements.solve("job_round", round_, "sia_round", "pulp")
        exact = exact_round.solve(round_)
        assert sia.objective == exact.objective
        assert exact.status.value == "optimal"


def test_costs_of_configurations_are_sias_formula() -> None:
    data = random_queue(4)
    offers = _rounds.Offers(data)
    for job in data.jobs:
        trained = data.trained(job)
        best = offers.best(trained)
        slowest = max(option.step_us for option in best.values())
        for option in best.values():
            for parts in (32, 16, 1):
                goodput = slowest / option.step_us * parts / 32
                want = 10_000 * goodput**-0.5
                assert offers.cost(trained, option.step_us, parts) == pytest.approx(
                    want, abs=1.001
                )


def test_a_job_that_a_policy_never_serves_is_said_and_not_waited_for() -> None:
    """Sia's configurations are powers of two; d = 3 alone fits this job."""
    cluster = catalogue.cluster([("A100-40G", 3)], 5.0)
    data = queue(("gpt2", 75, 1, 0.0), cluster=cluster)
    options = data.rates.options(data.trained(data.jobs[0]))
    assert {(o.data_parallel, o.tensor_parallel) for o in options} == {(3, 1)}
    with pytest.raises(NoPlan, match="never serves j0, although the cluster is idle"):
        simulator.simulate(data, "sia")
    (outcome,) = scheduling.schedule(data, ["sia"])
    assert outcome.result.status.value == "undecided"
    assert scheduling.schedule(data, ["frenzy"])[0].result.plan is not None


# --- the command and the page ----------------------------------------------------


def told(*words: Any) -> tuple[int, str, str]:
    return said("schedule", *words)


def test_bars_cover_what_leases_hold_and_no_two_of_a_lease_touch() -> None:
    for seed in range(4):
        data = random_queue(seed)
        line = {gpu: number for number, gpu in enumerate(data.cluster.gpu_ids())}
        for entry in simulator.simulate(data, "frenzy").schedule.jobs:
            for lease in entry.leases:
                made = list(gantt.bars(lease, line, 60.0))
                covered = [n for bar in made for n in range(bar.low, bar.high)]
                assert sorted(covered) == sorted(line[gpu] for gpu in lease.gpus)
                assert all(a.high < b.low for a, b in pairwise(made))
                for bar in made:
                    assert bar.start * 6e7 == pytest.approx(lease.start_us)
                    assert bar.end * 6e7 == pytest.approx(lease.end_us)


def test_no_two_models_share_a_colour_while_there_are_any() -> None:
    data = load_problem("frenzy/simulator-60")[1]
    colour = gantt.colours(data)
    assert set(colour) == {job.model for job in data.jobs}
    assert len(set(colour.values())) == len(colour) <= len(gantt.COLOURS)
    assert gantt.OTHER not in colour.values()
    models = {f"m{i}": catalogue.job_model("gpt2") for i in range(9)}
    jobs = tuple(
        data.jobs[0].model_copy(update={"name": f"{name} {i}", "model": name})
        for number, name in enumerate(models)
        for i in range(20 - number)
    )
    many = data.model_copy(update={"models": models, "jobs": jobs})
    colour = gantt.colours(many)
    assert [colour[f"m{i}"] for i in range(7)] == [*gantt.COLOURS]
    assert colour["m7"] == colour["m8"] == gantt.OTHER


def test_what_follows_requests_gives_as_many_gpus_where_they_do() -> None:
    """The others choose; each policy says of itself which it is."""
    cluster = catalogue.cluster([("A100-80G", 8)], 5.0)
    models = {"bert-base": catalogue.job_model("bert-base")}
    for asked in (1, 2, 4, 8):
        job = Job(
            name="j", model="bert-base", batch=8, samples=80, submit_s=0, gpus=asked
        )
        data = Data(name="q", cluster=cluster, models=models, jobs=(job,))
        for policy in POLICIES:
            (entry,) = simulator.simulate(data, policy).schedule.jobs
            follows = registry.entry("scheduling.policies", policy).follows_requests
            if follows:
                assert len(entry.leases[-1].gpus) == asked


def test_schedule_takes_the_jobs_of_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    lines = [f"{i * 50},{900 + i},{1 + i % 2}" for i in range(8)]
    trace.write_text("submit_s,duration_s,gpus\n" + "\n".join(lines))
    words = ("frenzy/testbed-30", "--trace", trace, "--policy", "frenzy,opportunistic")
    code, said, _ = told(*words, "--jobs", "5", "--load", "0.5", "--json")
    assert code == 0
    document = json.loads(said)
    assert len(document["instance"]["jobs"]) == 5
    assert document["offered_load"] == pytest.approx(0.5, rel=0.01)
    assert [row["policy"] for row in document["results"]] == ["frenzy", "opportunistic"]
    code, said, _ = told(*words[:3], "--jobs", "3", "--json")
    assert json.loads(said)["policy"] == "frenzy_typed"
    code, said, _ = told(*words[:3], "--jobs", "3", "--policy", "all", "--json")
    rows = json.loads(said)["results"]
    assert [row["policy"] for row in rows] == POLICIES


def test_a_queue_of_which_nothing_fits_is_proved_to_have_no_schedule(
    tmp_path: Path,
) -> None:
    small = catalogue.cluster([("RTX2080Ti", 1)], 5.0)
    path = tmp_path / "queue.json"
    path.write_text(queue(("gpt2-7b", 2, 1, 0.0), cluster=small).model_dump_json())
    code, said, _ = told(path, "--policy", "frenzy", "--json")
    assert code == 3
    document = json.loads(said)
    assert document["status"] == "infeasible"
    assert "no degrees of parallelism fit gpt2-7b at batch 2" in document["reasons"][0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["frenzy/simulator-30", "--jobs", "3"], "jobs: expected with --trace only"),
        (["tiny/two-nodes"], "has one model and no jobs"),
        (["frenzy/simulator-30", "--out", "x.txt"], "expected one of .html, .md, .csv"),
    ],
)
def test_bad_words_are_refused_with_a_remedy(words: list[str], message: str) -> None:
    code, said, error = told(*words)
    assert (code, said) == (2, "")
    assert message in " ".join(error.split())
