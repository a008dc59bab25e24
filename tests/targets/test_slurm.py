"""A Slurm of this machine takes jobs that are made of its own list, and runs them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import need
from exporter_plans import pipeline
from model_configs import LLAMA_31
from slurm_cluster import cluster, free_port, lacking

from hetopt import api
from hetopt.formats import exporting
from hetopt.formats.assembling import Listed, assembly
from hetopt.plans import TrainingPlan
from hetopt.schema import Instance
from hetopt.text.complaints import validated

pytestmark = [pytest.mark.targets, pytest.mark.tool("slurm")]

SMALL = {
    **{key: value for key, value in LLAMA_31.items() if key != "rope_scaling"},
    **{"num_hidden_layers": 6, "hidden_size": 64, "intermediate_size": 128},
    **{"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 256},
}
TYPES = "types=a100:A100-80GB-SXM4,l40s:L40S"
WORDS = "--cpu --steps 2 --seed 1 --data synthetic"
# Names of nodes are no hosts of this machine, which all of them are.
HERE = """\
#!/usr/bin/env bash
MASTER_ADDR=127.0.0.1 exec bash ./train.sh "$@"
"""
TELLS = """\
#!/usr/bin/env bash
set -- $*
echo "$SLURMD_NODENAME ${CUDA_VISIBLE_DEVICES:-none} $4" >> told
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What tells Slurm's commands of the cluster."""
    if why := lacking():
        pytest.skip(why)
    with cluster(tmp_path_factory.mktemp("slurm")) as env:
        yield env


def said(env: dict[str, str], *words: str, cwd: Path | None = None) -> str:
    """The output of a command, which ends well."""
    told = subprocess.run(
        words, env=env, cwd=cwd, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def planned(env: dict[str, str], place: Path) -> tuple[Instance, TrainingPlan]:
    """An instance of the list that sinfo prints, and a plan on parts of all nodes."""
    (place / "nodes").write_text(said(env, "sinfo", "-N", "-h", "-o", "%N %G"))
    (place / "config.json").write_text(json.dumps(SMALL))
    workload = {"sequence_length": 32, "global_batch": 4, "micro_batch_sizes": [1]}
    options = [TYPES, "inter_gbytes_per_s=3", "recompute=none", "zero=0"]
    made = assembly(
        place / "config.json", Listed("sinfo", [place / "nodes"]), options, workload
    )
    gpus = ["nfast1:2", "nfast1:3", "nold1:0", "nold2:1"]
    whole = pipeline(gpus, [(3, 2, 1), (2, 1, 1), (1, 1, 1)], 4, 1)
    data = validated(Instance, made.document, "the instance", file="")
    return data, TrainingPlan(pipelines=(whole,))


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["gres=A100-80GB-SXM4:gpu,L40S:gpu", "partition=all", "time=1:00:00"],
        ["cpus_per_gpu=1", "mem_per_gpu=10M"],
        ["nodes=named", "cpus_per_gpu=1", "mem_per_gpu=10M"],
    ],
)
def test_slurm_accepts_its_own_names_and_what_options_say(
    options: list[str], slurm: dict[str, str], tmp_path: Path
) -> None:
    files = exporting.export_plan("slurm", *planned(slurm, tmp_path), options)
    exporting.write(tmp_path / "job", files)
    words = ["sbatch", "--test-only", "job.sbatch"]
    told = subprocess.run(
        words, cwd=tmp_path / "job", env=slurm, capture_output=True, check=True
    )
    assert b"on nfast1,nold[1-2]" in told.stderr or options


def test_ranks_get_the_gpus_that_slurm_grants(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    """A job of another holds GPU 0 of nold1, and the plan says 0 there."""
    options = ["cpus_per_gpu=1", "mem_per_gpu=10M"]
    folder = tmp_path / "job"
    files = exporting.export_plan("slurm", *planned(slurm, tmp_path), options)
    exporting.write(folder, files)
    wants = ["-w", "nold1", "--gres=gpu:l40s:1", "--mem=10M", "-o", "/dev/null"]
    said(slurm, "sbatch", *wants, "--wrap", "sleep 600", cwd=tmp_path)
    try:
        told = ran(slurm, tmp_path, folder)
    finally:
        said(slurm, "scancel", "--me")
    assert told == ["nfast1 0,1 0", "nold1 1 1", "nold2 0 2"]


def ran(slurm: dict[str, str], place: Path, folder: Path) -> list[str]:
    """Of every rank of nodes the node, what is visible there, and its number."""
    (place / "torchrun").write_text(TELLS)
    (place / "torchrun").chmod(0o755)
    env = {**slurm, "PATH": f"{place}{os.pathsep}{slurm['PATH']}", "ARGS": WORDS}
    said(env, "sbatch", "--wait", "job.sbatch", cwd=folder)
    return sorted((folder / "told").read_text().splitlines())


def test_the_executor_trains_under_slurm_as_it_does_alone(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    need("torch")
    data, plan = planned(slurm, tmp_path)
    exporting.write(tmp_path / "job", exporting.export_plan("slurm", data, plan))
    (tmp_path / "job" / "here.sh").write_text(HERE)
    (tmp_path / "job" / "here.sh").chmod(0o755)
    torchrun = f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n'
    (tmp_path / "torchrun").write_text(torchrun)
    (tmp_path / "torchrun").chmod(0o755)
    env = {
        **slurm,
        "PATH": f"{tmp_path}{os.pathsep}{slurm['PATH']}",
        "ARGS": f"{WORDS} --json",
        "TRAIN": "./here.sh",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    words = ["sbatch", "--wait", "-o", "out", "job.sbatch"]
    ended = subprocess.run(words, cwd=tmp_path / "job", env=env, check=False)
    out = (tmp_path / "job" / "out").read_text()
    assert ended.returncode == 0, out[-4000:]
    # Slurm puts what is said on stderr behind the document.
    found, _ = json.JSONDecoder().raw_decode(out, out.index("{"))
    alone = api.run(plan, data, steps=2, seed=1, cpu=True, data="synthetic")
    losses = [step["loss"] for step in alone.steps]
    assert [step["loss"] for step in found["steps"]] == pytest.approx(losses, rel=1e-6)
