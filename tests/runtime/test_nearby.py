"""States on hosts' own disks: what is read from where, and what is gone on with."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from made_plans import pipeline, stage
from three_hosts import three_hosts

from hetopt import checkpoints, runtime
from hetopt.errors import Unsupported
from hetopt.plans import Recovery, TrainingPlan
from hetopt.runtime import supervisor
from hetopt.runtime.jobs import Optimiser, Settings, job
from hetopt.schema import Instance
from hetopt.text.complaints import validated

Row = dict[str, Any]
README = Path(runtime.__file__).with_name("README.md")
TREE = three_hosts("near", gpus=2)
DATA = validated(Instance, TREE, "instance")
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


def ran(folder: Path, plan: TrainingPlan, steps: int) -> tuple[list[Row], Row | None]:
    """Run up to a step: the rows of steps, and whence states came."""
    rows: list[Row] = []
    supervisor.run(job(DATA, plan, settings(folder, steps)), rows.append)
    restored = [row for row in rows if "restored" in row]
    return [row for row in rows if "step" in row], (restored or [None])[0]


def parameters_of(folder: Path) -> int:
    """All parameters, as the manifest on a disk lists them."""
    (place,) = (folder / "disks" / "b").glob("step-00000002")
    manifest = checkpoints.read_manifest(place)
    sizes = [tensor.size for unit in manifest.units for tensor in unit.tensors]
    return sum(sizes) // STATE_BYTES


@pytest.mark.slow
def test_states_come_from_where_they_are_nearest(tmp_path: Path) -> None:
    """Three recoveries: to other cuts, to a new host, and with disks lost."""
    pytest.importorskip("torch")
    rows, none = ran(tmp_path, FIRST, 2)
    assert none is None
    whole = parameters_of(tmp_path) * STATE_BYTES
    disk = tmp_path / "disks" / "b" / "step-00000002"
    shards = checkpoints.verified_catalogue(disk)
    assert {shard.degree for shard in shards} == {1}
    assert not checkpoints.incomplete(checkpoints.read_manifest(disk), shards)

    applied_to_the_disks_together(tmp_path)

    # Host a is gone. Of b's GPUs each needs what lies on its own disk.
    shutil.rmtree(tmp_path / "disks" / "a")
    more, row = ran(tmp_path, ON_B, 4)
    assert row is not None
    assert (row["restored"], row["bytes"]) == (2, {**NOTHING, "local": whole})
    rows += more
    measured = [[*row["bytes"].values(), row["all_from_storage_bytes"]]]

    # A new host has nothing: b's disk serves it. Norms are not cut: both have them.
    more, row = ran(tmp_path, ON_C, 6)
    assert row is not None
    assert row["bytes"]["storage"] == 0
    assert row["bytes"]["local"] == row["bytes"]["peer"] >= whole
    held_to_prediction(row, whole)
    rows += more
    measured.append([*row["bytes"].values(), row["all_from_storage_bytes"]])

    # All disks but one are lost, and that one has a part of the layers alone.
    shutil.rmtree(tmp_path / "disks" / "c")
    for file in (tmp_path / "disks" / "b" / "step-00000006" / "b").glob("[12].*"):
        file.unlink()
    more, row = ran(tmp_path, ON_C, 8)
    assert row is not None
    assert row["bytes"]["storage"] > 0
    assert row["bytes"]["storage"] < row["all_from_storage_bytes"]
    held_to_prediction(row, whole)
    rows += more
    measured.append([*row["bytes"].values(), row["all_from_storage_bytes"]])
    assert measured == shown(), "the table of hetopt/runtime/README.md has others"

    plain = Settings(
        steps=8, cpu=True, precision="fp64", optimiser=Optimiser(decay="none")
    )
    for row, want in zip(
        rows, supervisor.run(job(DATA, FIRST, plain)).steps, strict=True
    ):
        assert row["loss"] == pytest.approx(want["loss"], rel=1e-10)
        assert row["norm"] == pytest.approx(want["norm"], rel=1e-10)


def shown() -> list[list[int]]:
    """The bytes of the README's recoveries: by source, and all from storage."""
    lines = README.read_text(encoding="utf-8").splitlines()
    first = next(n for n, line in enumerate(lines) if "test_nearby.py" in line)
    rows = [line.split("|")[2:6] for line in lines[first + 2 : first + 5]]
    return [[int(re.sub(r"[ ,B]", "", cell)) for cell in row] for row in rows]


NOTHING = {"local": 0, "peer": 0, "storage": 0}


def applied_to_the_disks_together(folder: Path) -> None:
    """What a run saves is what `hetopt recover --apply` reads."""
    joined, out = folder / "joined", folder / "out"
    for disk in (folder / "disks").iterdir():
        shutil.copytree(disk / "step-00000002", joined, dirs_exist_ok=True)
    manifest = checkpoints.read_manifest(joined)
    shards = checkpoints.verified_catalogue(joined)
    assert {shard.place for shard in shards} == {"a", "b"}
    moves = checkpoints.complete(Recovery(transfers=()), ON_C, manifest, shards)
    checkpoints.apply(moves, joined, out)
    moved = checkpoints.verified_catalogue(out)
    assert {shard.place for shard in moved} == {"b", "c"}
    assert not checkpoints.incomplete(manifest, moved)


def held_to_prediction(row: Row, whole: int) -> None:
    """What was read is what was predicted, but for norms, which every shard has."""
    for kind, predicted in row["predicted_bytes"].items():
        assert abs(row["bytes"][kind] - predicted) <= 0.05 * whole
    assert sum(row["predicted_bytes"].values()) == row["all_from_storage_bytes"]


def test_plans_without_whole_shards_are_refused(tmp_path: Path) -> None:
    told = settings(tmp_path, 2)
    workload = DATA.workload
    costs = workload.costs.model_copy(update={"zero": 1})
    zero = DATA.model_copy(
        update={"workload": workload.model_copy(update={"costs": costs})}
    )
    with pytest.raises(Unsupported, match="--local: found ZeRO"):
        job(zero, ON_C, told)
    with pytest.raises(Unsupported, match=r"--local: .* give --checkpoint"):
        job(DATA, ON_C, told.model_copy(update={"checkpoint": None}))
