"""What a Slurm job asks for besides nodes and GPUs."""

import pytest
from exported import reader
from exporter_plans import EVEN, MIXED, instance

from hetopt.errors import InstanceError, UnknownName
from hetopt.formats import exporting


def directives(*options: str) -> list[str]:
    """The lines of the job, by component, without those of GPUs."""
    files = exporting.exported("slurm", instance(), MIXED, options)
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


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ("time=soon", "option time: found 'soon', expected a time"),
        ("cpus_per_gpu=0", "expected a positive whole number"),
        ("partition=a b", "expected a name, or TYPE:NAME"),
    ],
)
def test_words_that_are_none_of_slurm_are_refused(option: str, error: str) -> None:
    with pytest.raises(InstanceError, match=error):
        directives(option)


def test_options_of_another_target_or_type_are_refused() -> None:
    with pytest.raises(UnknownName, match="GPU type"):
        directives("partition=tiny:x")
    with pytest.raises(UnknownName, match="partition"):
        exporting.exported("megatron", instance(), EVEN, ["partition=x"])
