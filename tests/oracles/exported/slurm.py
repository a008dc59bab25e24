"""A Slurm job: the machines that it asks for, and the plan beside it."""

import re

from hetopt.errors import InstanceError

from .machines import PLAN, Share, disagreements, read

__all__ = ["read", "validate"]

JOB = "job.sbatch"


def validate(files: dict[str, str]) -> list[str]:
    """Where the job asks for other machines than the plan has, or forgets the plan."""
    broken = disagreements(files, _asked(files[JOB]))
    if _directives(files[JOB]).count("--exclusive --mem=0") not in (
        0,
        len(_asked(files[JOB])),
    ):
        broken.append("some components ask for whole nodes, others for a share")
    if f"/{PLAN}" not in files[JOB]:
        broken.append(f"{JOB} does not name {PLAN}")
    return broken


def _directives(text: str) -> list[str]:
    return [
        line.removeprefix("#SBATCH ")
        for line in text.splitlines()
        if line.startswith("#SBATCH ")
    ]


def _asked(text: str) -> list[Share]:
    """The components and the nodes that they stand for."""
    directives = _directives(text)
    names = re.search(r"^names=\((.*)\)$", text, re.MULTILINE)
    rows = re.findall(r'"([^"]*)"', names[1]) if names else []
    asked: list[Share] = []
    for line in directives:
        match = re.fullmatch(
            r"--nodes=(\d+) --ntasks-per-node=1 --gres=gpu:([^:]+):(\d+)", line
        )
        if match is None:
            continue
        nodes = tuple(rows[len(asked)].split()) if len(asked) < len(rows) else ()
        if len(nodes) != int(match[1]):
            raise InstanceError(
                f"{JOB}: found {match[1]} nodes and {len(nodes)} names for them, "
                "expected as many; export the plan again"
            )
        asked.append(Share(match[2], int(match[3]), nodes))
    if directives.count("hetjob") != len(asked) - 1:
        raise InstanceError(
            f"{JOB}: found {directives.count('hetjob')} lines hetjob between "
            f"{len(asked)} components, expected one less; export the plan again"
        )
    return asked
