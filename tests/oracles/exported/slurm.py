"""A Slurm job: the machines that it asks for, and the plan beside it."""

import re

from hetopt.errors import InstanceError
from hetopt.schema import Node

from .machines import PLAN, Share, carried, disagreements, read

__all__ = ["read", "validate"]

JOB = "job.sbatch"


def validate(files: dict[str, str]) -> list[str]:
    """Where the job asks for other machines than the plan has, or forgets the plan."""
    nodes = carried(files)[0].planned_cluster.node
    asked = _asked(files[JOB])
    broken = disagreements(files, _of_cards([one for one, _ in asked], nodes))
    for one, listed in asked:
        for name in one.nodes:
            wanted = nodes[name].gres or nodes[name].gpu
            if one.gpu != wanted and listed != one.nodes:
                broken.append(f"{name} has GPUs of type {wanted}, not {one.gpu}")
    if _directives(files[JOB]).count("--exclusive --mem=0") not in (0, len(asked)):
        broken.append("some components ask for whole nodes, others for a share")
    if f"/{PLAN}" not in files[JOB]:
        broken.append(f"{JOB} does not name {PLAN}")
    return broken


def _of_cards(asked: list[Share], nodes: dict[str, Node]) -> list[Share]:
    """What is asked for by the instance's types: several of Slurm's may be one."""
    order, found = list(nodes), dict[tuple[str, int], list[str]]()
    for one in asked:
        found.setdefault((nodes[one.nodes[0]].gpu, one.gpus), []).extend(one.nodes)
    return [
        Share(*kind, tuple(sorted(names, key=order.index)))
        for kind, names in found.items()
    ]


def _directives(text: str) -> list[str]:
    return [
        line.removeprefix("#SBATCH ")
        for line in text.splitlines()
        if line.startswith("#SBATCH ")
    ]


def _asked(text: str) -> list[tuple[Share, tuple[str, ...]]]:
    """The components by Slurm's type, and the nodes that they ask for by name."""
    directives = _directives(text)
    names = re.search(r"^names=\((.*)\)$", text, re.MULTILINE)
    rows = re.findall(r'"([^"]*)"', names[1]) if names else []
    asked: list[tuple[Share, tuple[str, ...]]] = []
    for line in directives:
        match = re.fullmatch(
            r"--nodes=(\d+) --ntasks-per-node=1 "
            r"--gres=gpu:(?:([^:]+):)?(\d+)(?: --nodelist=(\S+))?",
            line,
        )
        if match is None:
            continue
        nodes = tuple(rows[len(asked)].split()) if len(asked) < len(rows) else ()
        if len(nodes) != int(match[1]):
            raise InstanceError(
                f"{JOB}: found {match[1]} nodes and {len(nodes)} names for them, "
                "expected as many; export the plan again"
            )
        listed = tuple((match[4] or "").split(","))
        asked.append((Share(match[2] or "", int(match[3]), nodes), listed))
    if directives.count("hetjob") != len(asked) - 1:
        raise InstanceError(
            f"{JOB}: found {directives.count('hetjob')} lines hetjob between "
            f"{len(asked)} components, expected one less; export the plan again"
        )
    return asked
