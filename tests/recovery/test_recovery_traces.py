"""Jobs along traces of spot GPUs: what is read, which nodes leave, what is counted."""

import json
from functools import cache
from itertools import accumulate, pairwise
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest
from command_line import typed as hetopt_command

import hetopt
from hetopt.api.replaying import METHODS, Replayed, replay
from hetopt.cli import output
from hetopt.errors import InstanceError, MethodFailed, MixedData, Unsupported
from hetopt.modelling import Limits
from hetopt.planners import varuna
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.problems.recovery import Storage, changes
from hetopt.recovery.pooling import Pool
from hetopt.recovery.replay import KINDS, traces
from hetopt.recovery.replay.traces import Step
from hetopt.schema import Instance

PLANNERS = ("megatron", "autohet")
CHECKPOINT_S = 60.0


@cache
def spot() -> tuple[Instance, TrainingPlan]:
    """BERT-Large on four nodes of two A100 and two of two H20, and a plan."""
    document = hetopt.load("autohet/a100-h20-2x2-bert-large").model_dump(mode="json")
    a100, h20 = document["cluster"]["nodes"]
    document["cluster"]["nodes"] = [
        {**node, "name": f"{node['gpu']}-{i}"}
        for node, count in ((a100, 4), (h20, 2))
        for i in range(count)
    ]
    instance = Instance.model_validate_json(json.dumps(document))
    plan = hetopt.plan(instance, "autohet").plan
    assert isinstance(plan, TrainingPlan)
    return instance, plan


def replayed(folder: Path, *series: traces.Series, **choices: Any) -> Replayed:
    """The tiny job along these series, planned without a clock."""
    instance, plan = spot()
    path = folder / "trace.csv"
    named = {f"s{i}": steps for i, steps in enumerate(series)}
    path.write_text(trace_text(named))
    shared: dict[str, Any] = {
        "old_instance": instance,
        "planners": PLANNERS,
        "planning_s": None,
        "checkpoint_s": CHECKPOINT_S,
        "limits": None,
    }
    return replay(plan, instance, path, **{**shared, **choices})


def trace_text(series: dict[str, traces.Series]) -> str:
    """The text of a file of these series, in seconds."""
    rows = [
        f"{name},{step.time_us // 10**6}.{step.time_us % 10**6:06},{step.gpus}"
        for name, steps in series.items()
        for step in steps
    ]
    return "\n".join(["series,time_s,gpus", *rows, ""])


def at(*rows: tuple[float, int]) -> traces.Series:
    return tuple(Step(round(time_s * 10**6), gpus) for time_s, gpus in rows)


# --- files and nodes -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: found the columns none, expected time_s and gpus"),
        ("time_s,count\n1,2\n", "expected time_s and gpus; add gpus"),
        ("time_s,gpus\n0,2\n", "found too few rows, expected two or more"),
        ("time_s,gpus\n0,2\n0,3\n", "line 3: time_s: found 0, expected more than"),
        ("time_s,gpus\nnan,2\n", 'line 2: time_s: found "nan", expected a number'),
        ("time_s,gpus\n1e99,2\n", "expected a number from 0 to"),
        ("time_s,gpus\n0,-1\n", 'line 2: gpus: found "-1", expected a whole number'),
        (f"time_s,gpus\n0,{'9' * 5000}\n", "expected a whole number from 0 to 100000"),
        ("time_s,gpus\n0\n", "line 2: gpus: found nothing"),
        ('time_s,gpus\n0,"2\n', "not CSV"),
    ],
)
def test_a_wrong_file_is_said_by_line_and_column(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(InstanceError) as caught:
        traces.read(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def changing(seed: int, gpus: int, rows: int, mean_s: float = 300) -> traces.Series:
    """A random series of up to so many GPUs."""
    random = Random(f"spot {seed}")
    times = accumulate(random.uniform(1, 2 * mean_s) for _ in range(rows))
    return at(*((time_s, random.randint(0, gpus)) for time_s in times))


@pytest.mark.parametrize("seed", range(8))
def test_nodes_are_as_many_as_the_count_has_room_for(seed: int, tmp_path: Path) -> None:
    cluster = spot()[0].planned_cluster
    path = tmp_path / "trace.csv"
    path.write_text(trace_text({"a": changing(seed, gpus=20, rows=60)}))
    steps = traces.series_of(path, "a")
    found = traces.moments(cluster, steps, seed)
    assert found == traces.moments(cluster, steps, seed)
    steps = tuple(
        step._replace(time_us=step.time_us - steps[0].time_us) for step in steps
    )
    largest = max(step.gpus for step in steps)
    for time_us, gpus in steps[:-1]:
        there = [m for m in found if m.time_us <= time_us][-1].nodes
        used = sum(cluster.node[name].count for name in there)
        room = gpus * 12 // largest
        assert room - 2 < used <= room  # all nodes have two
    assert (found[0].time_us, found[-1].time_us) == (0, steps[-1].time_us)
    assert all(a.nodes != b.nodes for a, b in pairwise(found[:-1]))


# --- what is counted -------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_all_gpu_time_is_accounted_and_every_plan_has_its_nodes(
    seed: int, tmp_path: Path
) -> None:
    steps = changing(seed, gpus=12, rows=6, mean_s=150)
    found = replayed(tmp_path, steps, limits=Limits(seed=seed), restart_s=2.0)
    node, nodes = found.instance.planned_cluster.node, found.moments
    spans = list(pairwise(nodes))
    available = sum(
        sum(node[name].count for name in a.nodes) * (b.time_us - a.time_us)
        for a, b in spans
    )
    for one in found.replays:
        spent, last = dict.fromkeys(KINDS, 0), 0
        for leg in one.legs:
            run = leg.run
            assert last <= run.start_us <= leg.end_us <= found.end_us
            last = leg.end_us
            judged = training_plan.evaluate(run.instance, run.plan)
            assert judged.objective == run.iteration_us
            for moment in nodes[:-1]:
                if run.start_us <= moment.time_us < leg.end_us:
                    assert run.plan.gpus_by_node.keys() <= set(moment.nodes)
            done = leg.iterations + leg.redone
            trained = max(0, leg.end_us - run.ready_us)
            assert done == trained // run.iteration_us
            spent["useful"] += leg.iterations * run.iteration_us * run.gpus
            spent["redone"] += leg.redone * run.iteration_us * run.gpus
            spent["cut"] += trained % run.iteration_us * run.gpus
            spent["recovering"] += run.gpus * (
                min(run.ready_us, leg.end_us) - run.start_us
            )
            # Less than what a checkpoint is written after is ever lost.
            assert leg.redone * run.iteration_us < CHECKPOINT_S * 10**6 + (
                run.iteration_us
            )
            if leg.redone:
                there = [m for m in nodes if m.time_us <= leg.end_us][-1].nodes
                # Only a loss makes a job fall back.
                assert run.plan.gpus_by_node.keys() - {*there}
        spent["idle"] = available - sum(spent.values())
        assert spent["idle"] >= 0
        assert one.tally.gpu_us == spent
        assert one.tally.available_us == available
        assert one.tally.iterations == sum(leg.iterations for leg in one.legs)


def test_a_plan_that_was_made_along_the_way_is_remembered(tmp_path: Path) -> None:
    instance, plan = spot()
    pool = Pool(("megatron",), time_s=None, known=[("known", plan)])
    some = [node for node in instance.planned_cluster.nodes if node.name != "H20-1"]
    few = instance.model_copy(update={"cluster": instance.planned_cluster.only(some)})
    less = pool.considered(changes.between(instance, few), plan, Storage())
    made = {one.plan for one in less.candidates if one.name == "megatron"}
    assert "known" not in {one.name for one in less.candidates}
    old = min(less.candidates, key=lambda one: one.iteration_us)
    more = pool.considered(changes.between(few, instance), old.plan, Storage())
    assert "known" in {one.name for one in more.candidates}
    # And the plan of fewer nodes is one of all of them, too.
    assert made & {one.plan for one in more.candidates}


def test_without_a_change_nothing_is_moved(tmp_path: Path) -> None:
    instance, plan = spot()
    found = replayed(tmp_path, at((0, 5), (9, 5), (1000, 5)))
    each = training_plan.evaluate(instance, plan).objective
    assert isinstance(each, int)
    for one in found.replays:
        assert (one.tally.moves, one.tally.replans) == (0, 0)
        assert one.tally.iterations == 10**9 // each


def test_after_one_loss_faster_recoveries_train_more(tmp_path: Path) -> None:
    found = replayed(tmp_path, at((0, 6), (500, 5), (1000, 5)))
    done = {one.method: one.tally.iterations for one in found.replays}
    assert done["varuna"] < done["autohet_recovery"] <= done["recovery"]
    exact = found.replays[METHODS.index("recovery")].tally
    assert (exact.moves, exact.proved) == (1, 1)


def test_what_left_and_came_back_has_saved_nothing(tmp_path: Path) -> None:
    found = replayed(tmp_path, at((0, 6), (500, 0), (700, 6), (1500, 6)))
    first, second = {}, {}
    for one in found.replays:
        assert one.tally.waiting_us == 200 * 10**6
        assert len(one.legs) == 2
        first[one.method], second[one.method] = one.legs
        assert first[one.method].redone == first["varuna"].redone
    # All of it is in the cloud alone, which is one link for every method.
    assert len({leg.run.ready_us for leg in second.values()}) == 1


def test_without_cloud_what_is_lost_stays_lost(tmp_path: Path) -> None:
    no_cloud = Storage(cloud_gbytes_per_s=None)
    trace = at((0, 6), (500, 0), (700, 6), (1500, 6))
    found = replayed(tmp_path, trace, storage=no_cloud)
    for one in found.replays:
        assert [leg.end_us for leg in one.legs] == [500 * 10**6]
        assert one.tally.waiting_us == 1000 * 10**6


def test_an_early_checkpoint_loses_less(tmp_path: Path) -> None:
    trace = at((0, 6), (500, 2), (1000, 2))
    often, never = (
        replayed(tmp_path, trace, checkpoint_s=seconds, methods=["varuna"]).replays[0]
        for seconds in (10.0, 10**6)
    )
    assert often.tally.redone_us < never.tally.redone_us
    assert never.legs[0].iterations == 0
    assert often.legs[0].run.iteration_us * never.legs[0].redone <= 500 * 10**6


def test_a_replay_goes_on_where_a_planner_fails_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(data: Any) -> Any:
        raise ValueError("max() arg is an empty sequence")

    trace = at((0, 6), (500, 5), (1000, 5))
    whole = replayed(tmp_path, trace)
    monkeypatch.setattr(varuna, "plan", failing)
    found = replayed(tmp_path, trace)
    for before, after in zip(whole.replays, found.replays, strict=True):
        if after.method != "varuna":
            assert (after.tally, after.failed) == (before.tally, ())
            continue
        assert after.tally.moves == 0
        assert after.tally.waiting_us == 500 * 10**6
        (told,) = after.failed
        assert "varuna failed: ValueError: max()" in told
    rows = {row["method"]: row for row in found.to_json()["methods"]}
    assert [name for name, row in rows.items() if "failed" in row] == ["varuna"]
    with pytest.raises(MethodFailed, match="varuna"):
        replayed(tmp_path, trace, methods=["varuna"])


def test_an_interrupted_replay_ends_all_methods_at_one_time(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    trace = at((0, 6), (300, 4), (600, 6), (900, 6))
    found = replayed(tmp_path, trace, progress=stop)
    assert found.interrupted
    assert found.end_us == 300 * 10**6
    assert found.to_json()["stop"] == "interrupted"
    assert {one.legs[0].end_us for one in found.replays} == {found.end_us}


def test_what_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    trace = at((0, 6), (300, 4))
    with pytest.raises(Unsupported, match="unsaved"):
        replayed(tmp_path, trace, storage=Storage(unsaved=("A100-0",)))
    with pytest.raises(InstanceError, match="checkpoint_s: found 0"):
        replayed(tmp_path, trace, checkpoint_s=0)
    with pytest.raises(InstanceError, match="planning_s: found inf"):
        replayed(tmp_path, trace, planning_s=inf)
    instance, plan = spot()
    other = instance.with_workload(global_batch=instance.workload.global_batch * 2)
    with pytest.raises(MixedData, match="global_batch"):
        replay(plan, other, tmp_path / "trace.csv", old_instance=instance)


# --- the command -----------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    instance, plan = spot()
    made = {
        "instance": instance.model_dump(mode="json"),
        "plan": plan.model_dump(mode="json"),
    }
    (tmp_path / "plan.json").write_text(json.dumps(made))
    (tmp_path / "instance.json").write_text(json.dumps(made["instance"]))
    trace = trace_text({"a": at((0, 6), (300, 4), (600, 4))})
    (tmp_path / "trace.csv").write_text(trace)
    return tmp_path / "plan.json", tmp_path / "instance.json"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--trace", "trace.csv", "-o", "media="), "--option: media: "),
        (("--trace", "trace.csv", "--method", "x"), "unknown method 'x'"),
        (("--trace", "trace.csv", "--series", "x"), "found no series 'x'"),
        (("--trace", "trace.csv", "--out", "x.txt"), "found suffix '.txt'"),
        (("--trace", "no.csv"), "no.csv: found no such file"),
    ],
)
def test_what_the_command_refuses(
    files: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    told = hetopt_command("replay", *files, *words)
    assert told.exit_code == output.BAD_INPUT
    assert message in told.stderr
