"""Recoveries that are killed, or have little memory to run in."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from places import ROOT
from random_recoveries import (
    contents,
    expected,
    made,
    random_content,
    random_recovery,
    shards_of,
)

from hetopt import checkpoints
from hetopt.checkpoints import Manifest, Tensor, Unit
from hetopt.errors import InstanceError
from hetopt.plans import Pipeline, Recovery, Replica, Stage, TrainingPlan

RUN = """
import sys
from pathlib import Path
from hetopt import checkpoints
from hetopt.plans import Recovery
plan, old, new = map(Path, sys.argv[1:4])
recovery = Recovery.model_validate_json(plan.read_text())
if sys.argv[4:]:
    import resource
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
checkpoints.apply(recovery, old, new)
"""
MIB = 2**20


def plan_of(node: str, layers: int, degree: int) -> TrainingPlan:
    gpus = tuple(f"{node}:{rank}" for rank in range(degree))
    stage = Stage(layers=(0, layers), replicas=(Replica(gpus=gpus),))
    return TrainingPlan(pipelines=(Pipeline(micro_batches=1, stages=(stage,)),))


def layers_of(count: int, rows: int, width: int) -> Manifest:
    """Layers with a column-parallel, a row-parallel and a replicated tensor."""
    tensors = (
        Tensor(name="up", dtype="F32", shape=(rows, width), axis=0),
        Tensor(name="down", dtype="BF16", shape=(width, rows), axis=1),
        Tensor(name="norm", dtype="BF16", shape=(width,)),
    )
    units = tuple(Unit(name=str(n), tensors=tensors) for n in range(count))
    return Manifest(model="killed", units=units)


class Case:
    """A checkpoint at degree 2 on node a, and its recovery at degree 4 on node b."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.old, self.new = folder / "old", folder / "new"
        layers = len(manifest.units)
        self.content = random_content(layers)
        made(self.old, manifest, plan_of("a", layers, 2), self.content)
        self.plan = plan_of("b", layers, 4)
        needs = list(checkpoints.needs(self.plan, manifest))
        saved = checkpoints.catalogue(self.old)
        self.recovery = random_recovery(Random(layers), saved, needs)
        (folder / "plan.json").write_text(json.dumps(self.recovery.model_dump()))

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        paths = [str(self.folder / "plan.json"), str(self.old), str(self.new)]
        return subprocess.Popen(
            [sys.executable, "-c", RUN, *paths, *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
        )

    def drafts(self) -> list[Path]:
        return list(self.folder.glob(".*.tmp"))

    def check_whole(self) -> None:
        """What the recovery must have left behind, and nothing besides."""
        shards = shards_of(self.plan, self.manifest)
        found = contents(self.new)
        assert found == expected(self.manifest, shards, self.content)
        assert checkpoints.read_manifest(self.new) == self.manifest
        assert self.drafts() == []


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def kill(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGKILL)
    _, told = child.communicate()
    # It was killed at work: it neither failed nor finished before.
    assert child.returncode == -signal.SIGKILL, told.decode()


def begun(shard: Path) -> bool:
    """Whether a shard of the new folder has content; the folder may be renamed."""
    try:
        return shard.parent.name == "b" and shard.stat().st_size > 0
    except FileNotFoundError:
        return False


def test_a_recovery_that_is_killed_leaves_no_folder(tmp_path: Path) -> None:
    case = Case(tmp_path, layers_of(2, 2048, 2048))
    before = everything(case.old)
    child = case.start()
    while child.poll() is None and not any(map(begun, tmp_path.rglob("*.safetensors"))):
        time.sleep(0.0002)
    kill(child)
    assert not case.new.exists()
    for draft in case.drafts():
        shutil.rmtree(draft)
    checkpoints.apply(case.recovery, case.old, case.new)
    case.check_whole()
    assert everything(case.old) == before


def test_a_shard_that_changes_meanwhile_stops_the_recovery(tmp_path: Path) -> None:
    case = Case(tmp_path, layers_of(3, 8, 8))

    def report(done: int, total: int) -> None:
        (case.old / "a" / "2.tp0of2.safetensors").touch()

    with pytest.raises(InstanceError, match="found it changed since it was verified"):
        checkpoints.apply(case.recovery, case.old, case.new, report)
    assert not case.new.exists()
    assert case.drafts() == []


@pytest.mark.skipif(sys.platform != "linux", reason="limits its own address space")
def test_memory_does_not_grow_with_the_checkpoint(tmp_path: Path) -> None:
    # Tensors of 64 and 32 MiB, one read in long rows and one in pieces of rows.
    case = Case(tmp_path, layers_of(1, 8192, 2048))
    size = sum(path.stat().st_size for path in case.old.rglob("*.safetensors"))
    assert size > 95 * MIB
    child = case.start(str(8 * MIB))
    _, told = child.communicate()
    assert child.returncode == 0, told.decode()
    case.check_whole()


def test_gpus_of_a_node_share_the_shard_that_both_need(tmp_path: Path) -> None:
    case = Case(tmp_path, layers_of(2, 8, 8))
    twins = [
        one.model_copy(update={"gpu": f"b:{4 + int(one.gpu[2:])}"})
        for one in case.recovery.transfers
    ]
    both = Recovery(transfers=(*case.recovery.transfers, *twins))
    assert checkpoints.apply(both, case.old, case.new).written == 8
    case.check_whole()
