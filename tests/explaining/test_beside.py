"""Traces beside a simulation: what ran as predicted shows no difference."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from random_pipelines import random_instance
from random_plans import random_plan
from typer.testing import CliRunner

from hetopt import cli
from hetopt.errors import InstanceError
from hetopt.explaining.beside import beside
from hetopt.explaining.simulator import Simulation, simulate
from hetopt.plans import TrainingPlan
from hetopt.report import beside as report

WORDS = {"F": "forward", "B": "backward"}
SLOW = (5.0, 1.0, 3.0, 2.0)  # the steps, of which the first warms up; shown: the last


def posed() -> tuple[Any, TrainingPlan, Simulation]:
    for seed in range(100):
        data = random_instance(Random(f"beside/{seed}"))
        plan = random_plan(data, seed)
        deepest = max(len(pipeline.stages) for pipeline in plan.pipelines)
        plain = data.workload.costs.pipeline_factor == 1
        if len(plan.pipelines) > 1 and deepest > 1 and plain:
            return data, plan, simulate(data, plan)
    raise AssertionError("no plan of several pipelines and stages")


def written(found: Simulation, plan: TrainingPlan, folder: Path) -> None:
    """Traces of steps that are as predicted, or so many times slower."""
    folder.mkdir()
    gpus = [
        (gpu, p, j)
        for p, pipeline in enumerate(plan.pipelines)
        for j, stage in enumerate(pipeline.stages)
        for replica in stage.replicas
        for gpu in replica.gpus
    ]
    last = max(float(line.total_us) for line in found.timelines)
    sums = float(found.sync_factor * found.sync_us) + found.tied_us
    for rank, (gpu, p, j) in enumerate(gpus):
        events: list[dict[str, Any]] = []
        where = {"ph": "X", "pid": gpu.partition(":")[0], "tid": rank}

        def span(name: str, start: float, stop: float) -> None:
            times = {"ts": start, "dur": stop - start}
            events.append({"name": name, **times, **where})  # noqa: B023

        now = 1e9
        for times in SLOW:
            ended = now
            for one in found.timelines[p].passes:
                if one.stage != j:
                    continue
                start, stop = (
                    now + times * float(us) for us in (one.start_us, one.end_us)
                )
                span("wait", ended, start)
                span(f"{WORDS[one.kind]} {one.micro_batch}", ended, stop)
                ended = stop
            summed = now + times * (last + sums)
            span("sum of gradients", ended, summed)
            span("update", summed, summed + times * found.update_us)
            now += times * float(found.iteration_us)
        told = {"gpu": gpu, "rank": rank}
        tree = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": told}
        (folder / f"rank-{rank}.json").write_text(json.dumps(tree))


def test_what_runs_as_predicted_but_slower_is_slower_everywhere(tmp_path: Path) -> None:
    _, plan, found = posed()
    written(found, plan, tmp_path / "traces")
    seen = beside(found, plan, tmp_path / "traces")
    assert (seen.step, seen.steps) == (4, len(SLOW))
    rows = list(seen.rows())
    stages = sum(len(pipeline.stages) for pipeline in plan.pipelines)
    assert len(rows) == 3 * stages + 5
    for row in rows:
        if row.what in ("the rest", "iteration"):
            continue  # overhead comes after all that is traced
        want = 2 * row.predicted_us
        assert row.measured_us == pytest.approx(want, rel=1e-6, abs=1e-3), row
    predicted = sum(len(line.passes) for line in found.timelines)
    assert report.page(seen).count("<rect") >= 2 * predicted
    assert len(report.table(seen).rows) == len(rows)


def test_traces_of_another_plan_are_refused(tmp_path: Path) -> None:
    _, plan, found = posed()
    with pytest.raises(InstanceError, match=r"no rank-\*\.json"):
        beside(found, plan, tmp_path)
    folder = tmp_path / "traces"
    written(found, plan, folder)
    first = plan.pipelines[0]
    more = first.model_copy(update={"micro_batches": first.micro_batches + 1})
    other = plan.model_copy(update={"pipelines": (more, *plan.pipelines[1:])})
    with pytest.raises(InstanceError, match="is it of this plan"):
        beside(found, other, folder)
    (folder / "rank-0.json").unlink()
    with pytest.raises(InstanceError, match="expected those of the plan's GPUs"):
        beside(found, plan, folder)


def test_the_command_shows_the_step_and_draws_it(tmp_path: Path) -> None:
    data, plan, found = posed()
    written(found, plan, tmp_path / "traces")
    place = tmp_path / "plan.json"
    whole = {
        "instance": data.model_dump(mode="json"),
        "plan": plan.model_dump(mode="json"),
    }
    place.write_text(json.dumps(whole))
    out = tmp_path / "beside.html"
    words = ["simulate", str(place), "--beside", str(tmp_path / "traces")]
    told = CliRunner().invoke(cli.app, [*words, "--out", str(out), "--json"])
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["beside"]["rows"]
    assert {"forward", "backward", "waiting"} < {row["what"] for row in rows}
    assert "Where they differ" in out.read_text()
    refused = CliRunner().invoke(cli.app, [*words, "--schedule", "gpipe"])
    assert refused.exit_code == 2
