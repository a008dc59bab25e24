"""Sailor's files: what it takes for granted, and the plan that it would run."""

from itertools import pairwise
from typing import Any

from hetopt.errors import InstanceError
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.text.parsing import parse_tree

PLAN, NODES, LAUNCH = "sailor_plan.json", "nodes", "launch.py"


def validate(files: dict[str, str]) -> list[str]:
    """What `update_nodes` and the simulator take for granted and the files break."""
    made, pipeline, nodes = _parsed(files)
    layers, stages = pipeline["layers_per_stage"], pipeline["tmp_per_stage"]
    count, replicas = pipeline["num_stages"], pipeline["dp"]
    broken = []
    if {len(layers), len(stages), len(replicas)} != {count}:
        broken.append(f"the lists are not of {count} stages")
    flat = [layer for stage in layers for layer in stage]
    if flat != list(range(len(flat))) or not all(layers):
        broken.append("the layers are not each in one stage, in order")
    if len(set(replicas)) > 1 or replicas != list(map(len, stages)):
        broken.append("dp is not the number of replicas of every stage")
    if made["gbs"] % (made["mbs"] * replicas[0]):
        broken.append("the global batch is not divisible by micro-batch x dp")
    machines = [one for stage in stages for one in stage]
    if len(nodes) != len(machines) or len(set(nodes)) < len(nodes):
        broken.append("there is not one node for each replica")
    if f'"{PLAN}"' not in files[LAUNCH] or f'"{NODES}"' not in files[LAUNCH]:
        broken.append(f"{LAUNCH} does not name {PLAN} and {NODES}")
    return broken


def read(files: dict[str, str]) -> TrainingPlan:
    """The plan that Sailor would run: one pipeline, on the nodes in their order."""
    made, pipeline, nodes = _parsed(files)
    counts = [len(stage) for stage in pipeline["layers_per_stage"]]
    cuts = [sum(counts[:stage]) for stage in range(len(counts) + 1)]
    last = cuts[-1] - 2
    hosts = iter(nodes)
    samples = made["mbs"]
    stages = []
    for (a, b), row in zip(pairwise(cuts), pipeline["tmp_per_stage"], strict=True):
        replicas = []
        for _, degree in row:
            host = next(hosts)
            gpus = tuple(f"{host}:{index}" for index in range(degree))
            replicas.append(Replica(gpus=gpus, samples=samples))
        layers = (max(0, a - 1), min(last, b - 1))
        stages.append(Stage(layers=layers, replicas=tuple(replicas)))
    size = samples * len(stages[0].replicas)
    return TrainingPlan(
        pipelines=(
            Pipeline(
                micro_batches=made["gbs"] // size,
                micro_batch_size=size,
                stages=tuple(stages),
            ),
        )
    )


def _parsed(files: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    made = parse_tree(files[PLAN], PLAN, is_json=True)
    if len(made["pipeline_list"]) != 1:
        raise InstanceError(
            f"{PLAN}: pipeline_list: found {len(made['pipeline_list'])} pipelines, "
            "expected the one that Sailor runs"
        )
    # The controller takes all letters of a line but its last.
    nodes = [line[:-1] for line in files[NODES].splitlines(keepends=True)]
    return made, made["pipeline_list"][0], nodes
