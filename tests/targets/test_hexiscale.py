"""HexiScale's own scripts of every rank; FLASHFLEX is a checkout of FlashFlex."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from exporter_plans import EVEN, asymmetric, instance_for, two_alike

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan
from hetopt.problems.training_plan.shapes import apart

pytestmark = [pytest.mark.targets, pytest.mark.tool("hexiscale")]
# The training script says what it is told, in place of a training; no rank ends before
# all are started.
TRAIN = """\
import json, os, sys, time
told = {k: os.environ[k] for k in ("RANK", "WORLD_SIZE", "MASTER_ADDR")}
told |= {"gpu": os.environ["CUDA_VISIBLE_DEVICES"], "words": sys.argv[1:]}
open(f"told.{told['RANK']}", "w").write(json.dumps(told))
time.sleep(1)
"""


@pytest.mark.parametrize(
    "plan",
    [EVEN, asymmetric(), two_alike()],
    ids=["even", "two pipelines", "three pipelines"],
)
def test_scripts_of_every_machine_are_the_plan(
    plan: TrainingPlan,
    launched: Callable[..., "subprocess.CompletedProcess[str]"],
    checkout: Callable[[str], Path],
    note: Callable[[object], None],
    tmp_path: Path,
) -> None:
    source, copy = checkout("FLASHFLEX"), tmp_path / "flashflex"
    (copy / "llama").mkdir(parents=True)
    name = "llama/generate_hetero_scripts.py"
    (copy / name).write_text((source / name).read_text())
    (copy / "llama_train.py").write_text(TRAIN)
    data, folder = instance_for("hexiscale"), tmp_path / "run"
    exporting.write(folder, exporting.export_plan("hexiscale", data, plan))
    # Machines are one folder here: each is started when the one before has ended.
    machines = (folder / "machines").read_text().splitlines()
    ranks = []
    for line in machines:
        (folder / "machines").write_text(line + "\n")
        ended = launched(folder, HEXISCALE=str(copy))
        assert ended.returncode == 0, ended.stderr[-4000:]
    ranks = [json.loads(path.read_text()) for path in copy.glob("told.*")]
    ranks.sort(key=lambda one: int(one["RANK"]))
    pipelines = apart(plan) or []
    gpus = [g for one in pipelines for s in one.stages for g in s.replicas[0].gpus]
    assert len(ranks) == len(gpus)
    assert {one["WORLD_SIZE"] for one in ranks} == {str(len(gpus))}
    # A machine's cards are alike, and its own are counted from the first one.
    place = {}
    for gpu, one in zip(gpus, ranks, strict=True):
        host = gpu.rpartition(":")[0]
        assert one["gpu"] == str(place.get(host, 0))
        place[host] = place.get(host, 0) + 1
    words = {" ".join(one["words"]) for one in ranks}
    (line,) = words
    shapes = [[s.replicas[0].degree for s in one.stages] for one in pipelines]
    layers = [[len(s.span) for s in one.stages] for one in pipelines]
    assert f"--hetero_configs {shapes}" in line
    assert f"--layer_partitions {layers}" in line
    counts = " ".join(str(one.micro_batches) for one in pipelines)
    assert f"--chunks {counts} " in line
    note(re.sub(r" +", " ", line)[:160])
