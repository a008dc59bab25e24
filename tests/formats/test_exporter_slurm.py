"""What a Slurm job asks for besides nodes and GPUs."""

import re
from pathlib import Path
from typing import Any

import pytest
from exported import reader
from exporter_plans import EVEN, MIXED, instance, pipeline

from hetopt.errors import InstanceError, UnknownName, Unsupported
from hetopt.formats import exporting, importing
from hetopt.plans import TrainingPlan
from hetopt.schema import Instance


def directives(*options: str) -> list[str]:
    """The lines of the job, by component, without those of GPUs."""
    files = exporting.export_plan("slurm", instance(), MIXED, options)
    assert reader("slurm").validate(files) == []
    lines = files["job.sbatch"].splitlines()
    told = [line.split(" ", 1)[1] for line in lines if line.startswith("#SBATCH")]
    return [line for line in told if "gres" not in line]


def test_nodes_are_asked_for_whole_unless_a_share_is_told() -> None:
    whole = "--exclusive --mem=0"
    assert directives() == ["--job-name=hetopt", whole, "hetjob", whole]
    found = directives("cpus_per_gpu=6", "mem_per_gpu=60G", "time=12:00:00")
    assert found == [
        "--job-name=hetopt",
        "--time=12:00:00",
        "--cpus-per-task=48 --mem-per-gpu=60G",
        "hetjob",
        "--cpus-per-task=24 --mem-per-gpu=60G",
    ]


def test_a_partition_is_of_all_types_or_of_one() -> None:
    assert directives("partition=all").count("--partition=all") == 2
    found = directives("partition=small:old,big:new", "account=me")
    assert found[3:] == [
        "--partition=new",
        "hetjob",
        "--exclusive --mem=0",
        "--partition=old",
    ]
    assert "--account=me" in found


def test_nodes_are_asked_for_by_name_where_that_is_told() -> None:
    used = {replica.node for replica in MIXED.replicas()}
    told = [line for line in directives("nodes=named") if "nodelist" in line]
    names = [name for line in told for name in line.partition("=")[2].split(",")]
    assert sorted(names) == sorted(used)
    assert not any("nodelist" in line for line in directives())


def test_options_of_another_target_or_type_are_refused() -> None:
    with pytest.raises(UnknownName, match="GPU type"):
        directives("partition=tiny:x")
    with pytest.raises(UnknownName, match="partition"):
        exporting.export_plan("megatron", instance(), EVEN, ["partition=x"])


# --- what Slurm calls the GPUs -------------------------------------------------------


def planned(tmp_path: Path, lines: str, types: str = "") -> tuple[Instance, Any]:
    """An instance with the cluster of a list, and a plan that uses all of its GPUs."""
    (tmp_path / "nodes").write_text(lines, encoding="utf-8")
    options = ["inter_gbytes_per_s=12.5", *([types] if types else [])]
    read = importing.imported("sinfo", [tmp_path / "nodes"], options, None).document
    tree = instance().model_dump(mode="json")
    data = Instance.model_validate({**tree, "cluster": read["cluster"]}, strict=False)
    gpus = [*data.planned_cluster.gpu_ids()]
    count = len(gpus) // 2
    one = pipeline(gpus, [(12, 2, count)], 32 // count, count)
    return data, TrainingPlan(pipelines=(one,))


def asked(data: Instance, plan: TrainingPlan, *options: str) -> list[str]:
    """What every component says of its GPUs."""
    files = exporting.export_plan("slurm", data, plan, options)
    if not options:
        assert reader("slurm").validate(files) == []
    return re.findall(r"--gres=.*", files["job.sbatch"])


CARDS = "types=a100:A100-80GB-SXM4,old:V100-32GB-SXM2,big:A100-80GB-SXM4"


def test_the_option_says_what_slurm_calls_gpus(tmp_path: Path) -> None:
    data, plan = planned(tmp_path, "n1 gpu:a100:4\nn2 gpu:old:4\n", CARDS)
    found = asked(data, plan, "gres=A100-80GB-SXM4:fast,V100-32GB-SXM2:gpu")
    assert found == ["--gres=gpu:fast:4", "--gres=gpu:4"]
    assert asked(data, plan, "gres=V100-32GB-SXM2:v") == [
        "--gres=gpu:a100:4",
        "--gres=gpu:v:4",
    ]
    assert asked(instance(), EVEN, "gres=a100") == ["--gres=gpu:a100:8"]
    for option, error in {
        "gres=a100": "one name, a100, for GPUs of several types",
        "gres=a b": "option gres: found 'a b', expected a name",
        "gres=other:x": "GPU type",
    }.items():
        with pytest.raises((InstanceError, UnknownName), match=error):
            asked(data, plan, option)


def job(data: Instance, plan: TrainingPlan) -> str:
    return exporting.export_plan("slurm", data, plan)["job.sbatch"]


def test_where_nothing_tells_the_type_nodes_are_asked_for_by_name(
    tmp_path: Path,
) -> None:
    data, plan = planned(tmp_path, "n1,n2 gpu:4\n", "gpu=L40S")
    assert asked(data, plan) == ["--gres=gpu:4 --nodelist=n1,n2"]
    said = "# Slurm's type of L40S is unknown: its nodes are requested by name"
    assert said in job(data, plan)


def test_a_type_that_is_assumed_is_said(tmp_path: Path) -> None:
    assert asked(instance(), EVEN) == ["--gres=gpu:big:8"]
    said = "# Slurm's type of big is unknown: big is assumed (-o gres=big:TYPE)."
    assert said in job(instance(), EVEN)
    data, plan = planned(tmp_path, "n1 gpu:a100:8\n", CARDS)
    assert "is unknown" not in job(data, plan)


def test_a_type_that_slurm_cannot_have_is_refused() -> None:
    text = instance().model_dump_json()
    wrong = text.replace('"gres":null', '"gres":"a100 # x"', 1)
    with pytest.raises(Unsupported, match="is not a valid Slurm type"):
        job(Instance.model_validate_json(wrong), EVEN)
