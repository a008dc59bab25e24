"""Random instances draw every setting there is, and are read as they are drawn."""

import json
from functools import cache
from itertools import combinations
from random import Random

import drawing
import pytest

from hetopt import schema
from hetopt.schema.groups import FIELDS

# No matter, of offers, or drawn by trials that ask for it.
_NEVER_DRAWN = {"name", "restart_s", "checkpoint_every_s", "layout", "generation"}


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


@cache
def trees() -> list[dict]:
    """Draw instances enough for every pair of settings to come up."""
    return [_drawn(seed) for seed in range(2000)]


@cache
def read() -> list[schema.Instance]:
    """Return the instances, as the schema reads them."""
    return [drawing.read(tree) for tree in trees()]


PARTS = {
    schema.LatentAttention: "latent",
    schema.Indexer: "indexer",
    schema.Vectors: "vectors",
    **{kind: name for name, kind in drawing.MIXERS.items()},
}
SETTINGS = {schema.Lora: "lora", schema.Offload: "offload"}


def _within(tree: dict, field: str) -> list[dict]:
    return [tree[field]] if tree.get(field) else []


def _records(tree: dict, kind: type[schema.Record]) -> list[dict]:
    cluster, workload = tree["cluster"], tree["workload"]
    return {
        schema.GpuType: list(cluster["gpus"].values()),
        schema.Node: cluster["nodes"],
        schema.Inter: [cluster["inter"]],
        schema.ModelSpec: [tree["model"]],
        schema.LayerShape: tree["model"].get("layer_shapes") or [],
        **{kind: _within(tree["model"], field) for kind, field in PARTS.items()},
        **{kind: _within(workload["costs"], x) for kind, x in SETTINGS.items()},
        schema.CostSettings: [workload["costs"]],
        schema.Alternatives: [workload["alternatives"]],
        schema.Workload: [workload],
        schema.Profile: workload["costs"].get("profile", []),
    }[kind]


KINDS = [*drawing.FIELDS, schema.Profile]


def _fields(kind):
    """The fields of a record; of cost settings those of all groups, as drawn."""
    kinds = schema.GROUPS.values() if kind is schema.CostSettings else [kind]
    return {k: field for one in kinds for k, field in one.model_fields.items()}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_of_the_schema_is_drawn_away_from_its_default(kind):
    records = [record for tree in trees() for record in _records(tree, kind)]
    for name, field in _fields(kind).items():
        if name in _NEVER_DRAWN:
            continue
        default = json.loads(
            json.dumps(field.get_default(call_default_factory=True), default=_plain)
        )
        drawn = [record[name] for record in records if name in record]
        assert any(value != default for value in drawn), name


def _plain(value):
    if isinstance(value, schema.Record):
        return value.model_dump(mode="json")
    return None  # what is required has no default


_REFUSED = [
    {"zero_groups", "context_parallel"},  # which are not priced together
    {"zero_groups", "expert_parallel"},
]


@pytest.mark.parametrize(
    "pair", [*combinations(schema.Alternatives.model_fields, 2)], ids="-".join
)
def test_every_two_alternatives_are_drawn_together(pair):
    def chosen(workload, name):
        other = workload["alternatives"].get(name, ())
        return {*other} - {workload["costs"][name]}

    rows = [tree["workload"] for tree in trees()]
    both = [row for row in rows if all(chosen(row, name) for name in pair)]
    assert bool(both) == (set(pair) not in _REFUSED)


@pytest.mark.parametrize("field", FIELDS)
def test_what_divides_is_drawn_with_every_memory_and_on_single_gpus(field):
    """In costs and in alternatives; with less memory than the states, and with more."""
    seen = set()
    for tree, instance in zip(trees(), read(), strict=True):
        workload, nodes = tree["workload"], tree["cluster"]["nodes"]
        own, other = workload["costs"][field], workload["alternatives"].get(field, ())
        gpus, spec = tree["cluster"]["gpus"], instance.model
        states = 16 * sum(spec.parameters) / 2**30
        tight = min(gpu["memory_gib"] for gpu in gpus.values()) < states
        alone = any(node["count"] == 1 for node in nodes)
        for place, most in (("costs", own), ("alternatives", max(other, default=1))):
            if most > 1:
                seen |= {(place, tight, alone)}
    places = ("costs", "alternatives")
    assert {(x, tight, True) for x in places for tight in (True, False)} <= seen


def test_limits_are_drawn_together():
    """Zeros and the largest numbers of the schema, also several in one instance."""
    seen = set()
    for tree in trees():
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
