"""A provisioning plan is trained as any other, on the machines that it rents."""

import json
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from command_line import typed

import hetopt
from hetopt import api
from hetopt.errors import InstanceError, Unsupported
from hetopt.formats import exporting
from hetopt.plans import Provisioning, TrainingPlan
from hetopt.problems import provisioning, training_plan
from hetopt.result import Result
from hetopt.schema import Instance

FAST_GBYTES_PER_S = 10**6  # nothing that is sent takes a microsecond


def offers(seed: int, **changes: Any) -> Instance:
    """A small instance with two to three offers."""
    random = Random(f"rented {seed}")
    batch = random.choice([4, 8, 12])
    names = ["8xA100@aws/us-east-1", "V100", "2xT4@gcp-spot"]
    listed = []
    for name in names[: random.randint(2, 3)]:
        each = int(name.split("x")[0]) if "x" in name else 1
        listed.append(
            {
                "gpu": name,
                "quota": each * random.randint(1, 3) + random.randint(0, 1),
                "usd_per_hour": random.randint(1, 9),
                "peak_tflops": random.randint(1, 4),
                "memory_gib": 0.2,
                "gbytes_per_s": random.choice([0.2, 0.5, 1]),
                "gpus_per_instance": each,
            }
            | ({"intra_gbytes_per_s": 4} if each > 1 else {})
            | ({"losses_per_hour": 0.01} if "spot" in name else {})
            | changes
        )
    document = {
        "name": f"rented-{seed}",
        "model": {
            **{"name": "small", "layers": random.randint(2, 6), "hidden": 256},
            **{"heads": 4, "vocabulary": 1000},
        },
        "workload": {
            "sequence_length": 256,
            "global_batch": batch,
            "micro_batch_sizes": [1, 2],
            "iterations": 10,
            "restart_s": 60,
            "checkpoint_every_s": 600,
            "costs": {"head": "omit", "activations": "checkpoint"},
            "alternatives": {"zero": [1]} if random.random() < 0.5 else {},
        },
        "offers": listed,
        "search": {"data_parallel": [1, 2, 4], "max_stages": 4},
    }
    return Instance.model_validate_json(json.dumps(document))


def planned(document: dict[str, Any]) -> Provisioning:
    return Provisioning.model_validate_json(json.dumps(document))


def plans(instance: Instance) -> list[Provisioning]:
    """Plans of every degree that some rule finds, and the optimum."""
    best = hetopt.provision(instance, limits=20).plan
    found = [] if best is None else [best]
    for point in api.frontier(instance, limits=20).points:
        found.append(point.plan)
    return found


def rounded(instance: Instance, trained: TrainingPlan) -> int:
    """Microseconds at most: each layer is rounded up, in every micro-batch."""
    (pipeline,) = trained.pipelines
    return 4 * instance.model.layers * (instance.model.layers + pipeline.micro_batches)


@pytest.mark.parametrize("seed", range(6))
def test_where_nothing_sent_takes_time_both_judges_agree(seed: int) -> None:
    changes = {"gbytes_per_s": FAST_GBYTES_PER_S, "latency_us": 0}
    instance = offers(seed, **changes)
    fast = [
        one.model_copy(update={"intra_gbytes_per_s": FAST_GBYTES_PER_S})
        if one.gpus_per_instance > 1
        else one
        for one in instance.offers
    ]
    instance = instance.model_copy(update={"offers": tuple(fast)})
    data, made = provisioning.data(instance), plans(instance)
    assert made
    for plan in made:
        priced = provisioning.evaluate(data, plan).parts["iteration_us"]
        on, trained = api.rented.training(instance, plan)
        judged = training_plan.evaluate(on, trained)
        assert judged.violations == ()
        assert abs(judged.objective - priced) <= rounded(instance, trained)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_rented_is_what_the_plan_pays_for(seed: int) -> None:
    instance = offers(seed)
    data = provisioning.data(instance)
    for plan in plans(instance):
        parts = provisioning.evaluate(data, plan).parts
        on, trained = api.rented.training(instance, plan)
        cluster = on.planned_cluster
        rented = Counter(cluster.gpus[n.gpu].aliases or (n.gpu,) for n in cluster.nodes)
        machines = {offer.gpu: 0 for offer in data.offers}
        for names, count in rented.items():
            machines[names[0]] += count
        for row in parts["machines"]:
            offer = next(
                one
                for one in data.offers
                if (one.card, one.place, one.gpus_per_instance)
                == (row["gpu"], row["place"] or "", row["gpus_of_each"])
            )
            assert machines[offer.gpu] == row["machines"]
        assert sum(machines.values()) == sum(r["machines"] for r in parts["machines"])
        judged = training_plan.evaluate(on, trained)
        price = {offer.gpu: offer.usd_per_hour for offer in data.offers}
        used = plan.data_parallel * sum(price[stage.gpu] for stage in plan.stages)
        assert judged.parts["usd_per_hour"] == pytest.approx(used)
        each = {offer.gpu: offer.gpus_per_instance for offer in data.offers}
        sizes = {each[stage.gpu] for stage in plan.stages}
        if all(size == 1 or size % plan.data_parallel == 0 for size in sizes):
            # A ring over several machines of several GPUs is priced as the network.
            slack = rounded(instance, trained)
            assert judged.objective >= parts["iteration_us"] - slack


def test_samples_of_a_micro_batch_are_divided_as_equally_as_may_be() -> None:
    instance = api.load("tiny/offers")
    search = instance.search.model_copy(update={"micro_batches": 1})
    workload = instance.workload.model_copy(update={"global_batch": 5})
    changes = {"search": search, "workload": workload, "requirements": None}
    odd = Instance.model_validate_json(
        instance.model_copy(update=changes).model_dump_json(exclude_none=True)
    )
    plan = planned({"data_parallel": 2, "stages": [{"gpu": "big", "layers": 3}] * 2})
    _, trained = api.rented.training(odd, plan)
    assert [replica.samples for replica in trained.replicas()] == [3, 2] * 2
    three = odd.model_copy(
        update={"search": search.model_copy(update={"micro_batches": 3})}
    )
    with pytest.raises(InstanceError, match="found global_batch 5 in 3 micro-batches"):
        api.rented.training(three, plan)
    strange = plan.model_copy(update={"data_parallel": 4})
    with pytest.raises(InstanceError, match="the plan rents what is not offered"):
        api.rented.training(odd, strange)


# --- files -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `hetopt provision` writes."""
    folder = tmp_path_factory.mktemp("rented")
    done = typed("provision", "tiny/offers", "--out", folder / "prov.json")
    assert done.exit_code == 0, done.output
    return folder


def test_a_file_without_its_instance_needs_it_named(folder: Path) -> None:
    document = json.loads((folder / "prov.json").read_text())
    del document["posed_by"]
    bare = folder / "bare.json"
    bare.write_text(json.dumps(document))
    with pytest.raises(Unsupported, match="give --instance"):
        api.posed_training(bare)
    assert api.posed_training(bare, "tiny/offers") == api.posed_training(
        folder / "prov.json"
    )
    with pytest.raises(Unsupported, match="give --instance"):
        api.posed_training(bare, "tiny/two-nodes")
    assert api.posed_training(document | {"posed_by": "x"}, "tiny/offers")
    wrong = document | {"posed_by": {"name": "x"}}
    with pytest.raises(InstanceError, match=r"posed_by\.model"):
        api.posed_training(wrong)


def test_a_result_is_a_plan_that_can_be_run(folder: Path) -> None:
    result: Result = hetopt.provision("tiny/offers")
    assert api.posed_training(result) == api.posed_training(folder / "prov.json")


def test_machines_are_asked_for_where_they_are_offered(tmp_path: Path) -> None:
    for seed in range(20):
        instance = offers(seed)
        if len(instance.offers) == 3:
            break
    layers = instance.model.layers
    stages = [{"gpu": one.gpu, "layers": 1} for one in instance.offers]
    stages[0]["layers"] = layers - 2
    plan = planned({"data_parallel": 1, "stages": stages})
    on, trained = api.rented.training(instance, plan)
    texts = exporting.export_plan("skypilot", on, trained)
    asked = {}
    for name, text in texts.items():
        if name.endswith(".yaml"):
            resources = yaml.safe_load(text)["resources"]
            ((card, count),) = resources.pop("accelerators").items()
            asked[card] = count, resources
    assert asked == {
        "A100": (8, {"cloud": "aws", "region": "us-east-1"}),
        "V100": (1, {}),
        "T4": (2, {"cloud": "gcp", "use_spot": True}),
    }
    for name in (node.name for node in on.planned_cluster.nodes):
        assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name)


def test_offers_without_a_search_are_refused_with_what_to_add() -> None:
    """The fields that the message prints make the file a problem."""
    document = hetopt.load("tiny/offers").model_dump(mode="json", exclude_unset=True)
    document.pop("search")
    with pytest.raises(InstanceError, match="add `search: ") as refused:
        hetopt.provision(document)
    told = re.search(r"`search: (\{.*\})`", str(refused.value))
    search = yaml.safe_load(told[1])
    assert hetopt.provision({**document, "search": search}).plan is not None
