"""States on hosts' own disks: what is read from where, and what is gone on with."""

import shutil
from math import prod
from pathlib import Path
from typing import Any

import pytest
from made_plans import pipeline, stage
from three_hosts import three_hosts

from hetopt import runtime
from hetopt.errors import Unsupported
from hetopt.plans import TrainingPlan
from hetopt.runtime import supervisor
from hetopt.runtime.jobs import Optimiser, Settings, job
from hetopt.runtime.parameters import parameters
from hetopt.runtime.saved import LATEST, Saved
from hetopt.schema import Instance
from hetopt.text.complaints import validated

Row = dict[str, Any]
README = Path(runtime.__file__).with_name("README.md")
TREE = three_hosts("near", gpus=2)
DATA = validated(Instance, TREE, "instance")
WORK = DATA.workload
COSTS = WORK.costs.model_copy(
    update={"updates": WORK.costs.updates.model_copy(update={"zero": 1})}
)
ZERO = DATA.model_copy(update={"workload": WORK.model_copy(update={"costs": COSTS})})
STATE_BYTES = 3 * 8  # a weight and two moments of a parameter, in double precision


def plan(*pipelines: Any) -> TrainingPlan:
    return validated(TrainingPlan, {"pipelines": list(pipelines)}, "plan")


# Whole replicas on a and on b, cut otherwise.
FIRST = plan(
    pipeline(2, 2, stage(0, 4, (2, "a:0 a:1"))),
    pipeline(4, 1, stage(0, 1, (1, "b:0")), stage(1, 4, (1, "b:1"))),
)
ON_B = plan(pipeline(8, 1, stage(0, 2, (1, "b:0")), stage(2, 4, (1, "b:1"))))
ON_C = plan(
    pipeline(2, 2, stage(0, 4, (2, "b:0 b:1"))),
    pipeline(2, 2, stage(0, 4, (2, "c:0 c:1"))),
)


def settings(folder: Path, steps: int, **more: Any) -> Settings:
    fields = {"steps": steps, "cpu": True, "precision": "fp64", "every": 2, **more}
    fields |= {"checkpoint": str(folder / "states")}
    fields |= {"local": str(folder / "disks" / "{host}")}
    return Settings(**fields, optimiser=Optimiser(decay="none"))


def ran(
    folder: Path, plan: TrainingPlan, steps: int, data: Instance = DATA
) -> tuple[list[Row], Row | None]:
    """Run up to a step: the rows of steps, and whence states came."""
    rows: list[Row] = []
    supervisor.run(job(data, plan, settings(folder, steps)), rows.append)
    restored = [row for row in rows if "restored" in row]
    return [row for row in rows if "step" in row], (restored or [None])[0]


def bytes_of(one: TrainingPlan) -> int:
    """All states of the model: a weight and two moments of a parameter."""
    whole = parameters(job(DATA, one, Settings(steps=1, cpu=True)).decoder)
    return sum(prod(parameter.shape) for parameter in whole) * STATE_BYTES


def disk(folder: Path, host: str, step: int) -> Path:
    return folder / "disks" / host / f"step-{step:08}"


@pytest.mark.slow
def test_states_come_from_where_they_are_nearest(tmp_path: Path) -> None:
    """Four recoveries: to other cuts, to a new host, with files and disks lost."""
    pytest.importorskip("torch")
    rows, none = ran(tmp_path, FIRST, 2)
    assert none is None
    whole = bytes_of(FIRST)

    # Host a is gone. Of b's GPUs each needs what lies on its own disk.
    shutil.rmtree(tmp_path / "disks" / "a")
    more, row = ran(tmp_path, ON_B, 4)
    assert row is not None
    assert (row["restored"], row["bytes"]) == (2, {**NOTHING, "local": whole})
    rows += more
    measured = [row["bytes"]["local"]]

    # A new host has nothing: b's disk serves it. Norms are not cut: both have them.
    more, row = ran(tmp_path, ON_C, 6)
    assert row is not None
    assert row["bytes"]["storage"] == 0
    assert row["bytes"]["local"] == row["bytes"]["peer"] >= whole
    rows += more
    measured.append(row["bytes"]["peer"])
    text = " ".join(README.read_text(encoding="utf-8").split())
    for size in measured:
        assert f"{size:,} bytes" in text, "the executor's README has others"

    # Of the disks one is left, without what its second rank wrote.
    shutil.rmtree(tmp_path / "disks" / "c")
    for file in disk(tmp_path, "b", 6).glob("1-*"):
        file.unlink()
    more, row = ran(tmp_path, ON_C, 8)
    assert row is not None
    assert all(row["bytes"].values())
    rows += more

    # All are lost, and the run goes on from what all hosts see.
    shutil.rmtree(tmp_path / "disks")
    more, row = ran(tmp_path, ON_C, 10)
    assert row is not None
    assert row["bytes"]["local"] == row["bytes"]["peer"] == 0
    rows += more

    plain = Settings(
        steps=10, cpu=True, precision="fp64", optimiser=Optimiser(decay="none")
    )
    for row, want in zip(
        rows, supervisor.run(job(DATA, FIRST, plain)).steps, strict=True
    ):
        assert row["loss"] == pytest.approx(want["loss"], rel=1e-10)
        assert row["norm"] == pytest.approx(want["norm"], rel=1e-10)


NOTHING = {"local": 0, "peer": 0, "storage": 0}


@pytest.mark.slow
def test_states_that_zero_divides_come_from_disks_and_from_storage(
    tmp_path: Path,
) -> None:
    """Of a step that storage lacks, a part that no disk has is nowhere."""
    pytest.importorskip("torch")
    ran(tmp_path, ON_C, 4, ZERO)
    _, row = ran(tmp_path, FIRST, 5, ZERO)
    assert row is not None
    assert row["restored"] == 4
    assert row["bytes"]["local"] > 0
    older = Saved.of(str(tmp_path / "states"))
    assert older is not None
    shutil.rmtree(disk(tmp_path, "a", 5))
    before = older.model_copy(update={"step": 4, "folder": "step-00000004"})
    (tmp_path / "states" / LATEST).write_text(before.model_dump_json())
    rows, row = ran(tmp_path, ON_B, 6, ZERO)
    assert [one["step"] for one in rows] == [5, 6]


def test_states_on_disks_need_a_folder_that_all_hosts_see(tmp_path: Path) -> None:
    told = settings(tmp_path, 2).model_copy(update={"checkpoint": None})
    with pytest.raises(Unsupported, match=r"--local: .* give --checkpoint"):
        job(DATA, ON_C, told)
