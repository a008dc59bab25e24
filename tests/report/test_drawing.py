"""Random instances draw every setting there is, and are read as they are drawn."""

import json
from random import Random

import drawing
import pytest

from hetopt import schema

_NEVER_DRAWN = {"name", "restart_s", "checkpoint_every_s"}  # no matter, or of offers
# Chosen for the whole plan, by grids: brute force of their own, tests/search.
_APART = {
    (schema.Alternatives, "zero_groups"),
    (schema.CostSettings, "zero_groups"),
    (schema.CostSettings, "expert_parallel"),
    (schema.Alternatives, "context_parallel"),
    (schema.Alternatives, "expert_parallel"),
    (schema.Alternatives, "interleave"),
}


def _drawn(seed: int) -> dict:
    rng = Random(seed)
    tree = drawing.instance(
        rng,
        rng.choice([(1, 2), (2, 2, 1)]),
        layers=rng.randint(1, 4),
        batch=rng.randint(1, 4),
        sizes=rng.choice([(1,), (1, 2)]),
    )
    return json.loads(json.dumps(tree))


TREES = [_drawn(seed) for seed in range(1500)]


PARTS = {
    schema.LatentAttention: "latent",
    schema.MambaMixer: "mamba",
    schema.Vectors: "vectors",
}
SETTINGS = {schema.Lora: "lora", schema.Offload: "offload"}


def _within(tree: dict, field: str) -> list[dict]:
    return [tree[field]] if field in tree else []


def _records(tree: dict, kind: type[schema.Record]) -> list[dict]:
    cluster, workload = tree["cluster"], tree["workload"]
    return {
        schema.GpuType: list(cluster["gpus"].values()),
        schema.Node: cluster["nodes"],
        schema.Inter: [cluster["inter"]],
        schema.ModelSpec: [tree["model"]],
        **{kind: _within(tree["model"], field) for kind, field in PARTS.items()},
        **{kind: _within(workload["costs"], x) for kind, x in SETTINGS.items()},
        schema.CostSettings: [workload["costs"]],
        schema.Alternatives: [workload["alternatives"]],
        schema.Workload: [workload],
        schema.Profile: workload["costs"].get("profile", []),
    }[kind]


KINDS = [*drawing.FIELDS, schema.Profile]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_of_the_schema_is_drawn_away_from_its_default(kind):
    for name, field in kind.model_fields.items():
        if name in _NEVER_DRAWN or (kind, name) in _APART:
            continue
        default = json.loads(
            json.dumps(field.get_default(call_default_factory=True), default=_plain)
        )
        drawn = [
            record[name]
            for tree in TREES
            for record in _records(tree, kind)
            if name in record
        ]
        assert any(value != default for value in drawn), name


def _plain(value):
    if isinstance(value, schema.Record):
        return value.model_dump(mode="json")
    return None  # what is required has no default


def test_what_is_drawn_is_an_instance_that_the_schema_accepts():
    for tree in TREES:
        assert drawing.read(tree).planned_cluster.gpu_count in (3, 5)


def test_limits_are_drawn_together():
    """Zeros and the largest numbers of the schema, also several in one instance."""
    seen = set()
    for tree in TREES:
        costs, gpus = tree["workload"]["costs"], tree["cluster"]["gpus"].values()
        seen |= {("sync_factor", costs["sync_factor"])}
        seen |= {("tflops", gpu["peak_tflops"]) for gpu in gpus}
        times = [
            us for row in costs.get("profile", ()) for us in row.get("layer_us", ())
        ]
        seen |= {("free profile", not any(times)) for _ in [0] if costs.get("profile")}
        seen |= {("both", costs["sync_factor"] == 0 and costs["pipeline_factor"] > 10)}
    largest = ("tflops", drawing.MOST_TFLOPS)
    wanted = {("sync_factor", 0), ("sync_factor", 1e9), largest}
    assert wanted | {("tflops", 1e-6), ("free profile", True), ("both", True)} <= seen
