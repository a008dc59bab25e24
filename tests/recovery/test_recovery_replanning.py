"""After a change: what was lost, what is saved where, and which plan to go on with."""

import json
from itertools import permutations
from math import inf

import pytest
from flat import flat
from made_plans import pipeline, stage

import hetopt
from hetopt.errors import InstanceError, MixedData, UnknownName
from hetopt.files.clusters import generate
from hetopt.planners import autohet_recovery
from hetopt.plans import TrainingPlan
from hetopt.problems import recovery, training_plan
from hetopt.problems.recovery import Storage, changes
from hetopt.problems.recovery.posing import needs, pose
from hetopt.recovery import placing
from hetopt.recovery.replanning import Candidate, Replanning, kept_plan
from hetopt.result import Status
from hetopt.schema import Instance

MIXED = "autohet/a100-h20-8x8-gpt3-6.7b"
FAMILIES = ["equal", "unequal", "islands", "steep"]


def four_groups() -> TrainingPlan:
    """Scenario A before: four pipelines of 2 A100 and 2 H20, degree 2."""
    pipelines = [
        pipeline(
            *(32, 4),
            stage(0, 21, (4, f"node0:{i} node0:{i + 1}")),
            stage(21, 32, (4, f"node1:{i} node1:{i + 1}")),
        )
        for i in range(0, 8, 2)
    ]
    return TrainingPlan.model_validate_json(json.dumps({"pipelines": pipelines}))


def mixed(**nodes: int) -> Instance:
    """The paper's cluster with other nodes: `node0=4` has four GPUs."""
    document = hetopt.load(MIXED).model_dump(mode="json")
    kinds = {"node0": "A100", "node1": "H20", "node2": "A100", "node3": "H20"}
    cluster = document["cluster"]
    cluster["nodes"] = [
        {"name": n, "gpu": kinds[n], "count": count, "intra_gbytes_per_s": 600.0}
        for n, count in nodes.items()
    ]
    used = {node["gpu"] for node in cluster["nodes"]}
    cluster["gpus"] = {k: v for k, v in cluster["gpus"].items() if k in used}
    return Instance.model_validate_json(json.dumps(document))


# --- changes ---------------------------------------------------------------------


def test_a_node_that_the_new_cluster_lacks_is_lost_and_a_new_one_has_arrived() -> None:
    change = changes.between(mixed(node0=8, node1=8), mixed(node1=8, node3=2))
    assert change.lost_nodes == ("node0",)
    assert change.new_nodes == ("node3",)
    assert change.wounded == frozenset()
    assert set(change.kept) == {f"node1:{i}" for i in range(8)}


def test_gpus_that_are_left_are_numbered_anew() -> None:
    old = mixed(node0=4, node1=8)
    change = changes.between(old, old, ["node0:1"])
    assert change.kept["node0:0"] == "node0:0"
    assert change.kept["node0:3"] == "node0:2"
    assert "node0:1" not in change.kept
    assert change.wounded == {"node0"}
    assert change.new.planned_cluster.node["node0"].count == 3


@pytest.mark.parametrize(("listed", "lost"), [(2, (0, 2)), (4, (0, 2)), (2, ())])
def test_lost_gpus_may_or_may_not_be_listed_still(
    listed: int, lost: tuple[int, ...]
) -> None:
    """Where nobody says which, the last ones went."""
    told = [f"node0:{gpu}" for gpu in lost]
    change = changes.between(mixed(node0=4), mixed(node0=listed), told)
    first, second = (1, 3) if lost else (0, 1)
    assert change.kept == {f"node0:{first}": "node0:0", f"node0:{second}": "node0:1"}


def test_a_change_that_makes_no_sense_is_refused() -> None:
    old = mixed(node0=4, node1=8)
    with pytest.raises(UnknownName, match="unknown node 'node9'"):
        changes.between(old, old, ["node9"])
    with pytest.raises(UnknownName, match="unknown GPU 'node0:4'"):
        changes.between(old, old, ["node0:4"])
    with pytest.raises(InstanceError, match="no node is left"):
        changes.between(old, old, ["node0", "node1"])
    with pytest.raises(MixedData, match="with other layers"):
        changes.between(old, hetopt.load("tiny/two-nodes"))
    other = json.loads(old.model_dump_json().replace('"H20"', '"H800"'))
    with pytest.raises(InstanceError, match="rename it"):
        changes.between(old, Instance.model_validate_json(json.dumps(other)))


# --- what is saved and needed ------------------------------------------------------


def test_every_gpu_needs_its_stage_and_the_ends_once() -> None:
    instance = hetopt.load(MIXED)  # its embeddings are tied: both ends hold them
    rows = {need.gpu: need for need in needs(instance, four_groups())}
    assert rows["node0:1"].units == ("embedding", *map(str, range(21)))
    assert rows["node1:0"].units == (*map(str, range(21, 32)), "embedding")
    assert (rows["node0:1"].rank, rows["node0:1"].degree) == (1, 2)


def test_shards_lie_on_nodes_that_are_alive_and_in_the_cloud() -> None:
    old = mixed(node0=8, node1=8)
    change = changes.between(old, old, ["node0"])
    plan = hetopt.plan(change.new, "megatron").plan
    data = pose(change, four_groups(), plan)
    assert {row.place for row in data.saved} == {"node1", "cloud"}
    model = change.new.model
    whole = sum(unit.parameters for unit in data.units)
    assert whole == sum(model.parameters) + model.embedding_parameters


def with_adapters(instance: Instance, rank: int = 16) -> Instance:
    tree = flat(instance, exclude_unset=True)
    tree["workload"]["costs"]["lora"] = {"rank": rank}
    return Instance.model_validate(tree, strict=False)


def test_beside_adapters_these_alone_are_moved() -> None:
    """Frozen weights are no states; embedding and head have no adapters."""
    old, frozen = mixed(node0=8, node1=8), with_adapters(mixed(node0=8, node1=8))
    change, other = (changes.between(x, x, ["node0"]) for x in (old, frozen))
    plan = hetopt.plan(change.new, "megatron").plan
    whole = pose(change, four_groups(), plan)
    data = pose(other, four_groups(), plan)
    lora = frozen.workload.costs.lora
    assert [unit.parameters for unit in data.units] == list(
        lora.parameters(frozen.model)
    )
    assert {need.gpu for need in data.needs} == {need.gpu for need in whole.needs}
    assert all(name.isdigit() for need in data.needs for name in need.units)
    for each in (whole, data):
        assert hetopt.solve(each, "recovery", limits=5).plan is not None
    times = [hetopt.solve(x, "recovery", limits=5).objective for x in (data, whole)]
    assert 50 * times[0] < times[1]


def test_adapters_of_another_rank_are_other_states() -> None:
    one = mixed(node0=8, node1=8)
    for old, new in ((one, with_adapters(one)), (with_adapters(one, 8), one)):
        with pytest.raises(MixedData, match=r"costs\.lora is"):
            changes.between(old, new)


def test_memory_is_cleared_where_gpus_were_lost() -> None:
    old = mixed(node0=8, node1=8)
    change = changes.between(old, old, ["node0:7"])
    storage = Storage(media=("memory", "disk"), unsaved=("node1",))
    kept = kept_plan(change, four_groups())
    assert kept is not None
    data = pose(change, four_groups(), kept, storage)
    assert {(row.place, row.medium) for row in data.saved} == {
        ("node0", "disk"),
        ("cloud", "cloud"),
    }


# --- re-planning -----------------------------------------------------------------


def test_pipelines_that_lost_nothing_are_kept_with_the_batch_shared_anew() -> None:
    old = mixed(node0=8, node1=8)
    change = changes.between(old, old, ["node0:0", "node1:7"])
    kept = kept_plan(change, four_groups())
    assert [p.micro_batches for p in kept.pipelines] == [64, 64]
    assert training_plan.evaluate(change.new, kept).valid
    gone = changes.between(old, old, ["node0"])
    assert kept_plan(gone, four_groups()) is None


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(2))
def test_a_recovery_of_any_change_is_valid_and_proved(family: str, seed: int) -> None:
    old = generate(family, size="tiny", seed=seed)
    made = hetopt.plan(old, "islands").plan
    node = old.planned_cluster.nodes[seed % len(old.planned_cluster.nodes)].name
    found = hetopt.recover(made, old, [node], old_instance=old, planning_s=0.2)
    document = found.to_json()
    assert document["lost_nodes"] == [node]
    if found.chosen is None:
        assert found.result.status is Status.UNDECIDED
        return
    assert found.result.status is Status.OPTIMAL
    judged = training_plan.evaluate(found.change.new, found.chosen.plan)
    assert judged.valid
    assert judged.objective == found.chosen.iteration_us
    for method in ("autohet_recovery", "varuna"):
        words = {"new_plan": found.chosen.plan, "method": method}
        given = hetopt.recover(made, old, [node], old_instance=old, **words)
        assert given.chosen.plan == found.chosen.plan
        assert given.result.objective >= found.result.objective
        assert given.result.bound.value <= found.result.objective


@pytest.mark.parametrize("seed", range(4))
def test_no_other_exchange_leaves_more_bytes_at_home(seed: int) -> None:
    instance = generate("equal", size="tiny", seed=seed)
    names = [node.name for node in instance.planned_cluster.nodes]
    plan = hetopt.plan(instance, "islands").plan
    change = changes.between(instance, instance)
    order = list(permutations(names))[-1 - seed % 2]
    mixed_up = placing.rename_nodes(plan, dict(zip(names, order, strict=True)))

    def at_home(made: TrainingPlan) -> int:
        data = pose(change, plan, made)
        judged = recovery.evaluate(data, autohet_recovery.plan(data))
        return int(judged.parts["bytes"]["local"])

    settled = placing.exchange_nodes(
        instance.planned_cluster, mixed_up, pose(change, plan, mixed_up)
    )
    tried = [
        at_home(placing.rename_nodes(mixed_up, dict(zip(names, other, strict=True))))
        for other in permutations(names)
    ]
    assert at_home(settled) == max(tried)


# --- the horizon -----------------------------------------------------------------


def weighed(horizon_s: float, *times: tuple[int, int]) -> tuple[int, int]:
    """The chosen (recovery, iteration) in seconds."""
    old = mixed(node0=4)
    work = Replanning(changes.between(old, old), four_groups(), Storage())
    for recovery_s, iteration_s in times:
        work.candidates.append(
            Candidate("x", four_groups(), iteration_s * 10**6, recovery_s * 10**6)
        )
    found = work.chosen(horizon_s)
    return (found.recovery_us or 0) // 10**6, found.iteration_us // 10**6


def test_a_short_horizon_moves_little_and_a_long_one_runs_fast() -> None:
    near, fast = (10, 20), (100, 10)
    assert weighed(150, near, fast) == near
    assert weighed(300, near, fast) == weighed(inf, near, fast) == fast
    # Where no recovery ends in time, the first to start is chosen.
    assert weighed(5, (100, 10), (10, 50)) == (10, 50)
