"""Tasks of SkyPilot as its own parser reads them."""

import json
from pathlib import Path

import pytest
import yaml
from conftest import need
from exporter_plans import MIXED, instance

from hetopt.api import load, rented
from hetopt.formats import exporting
from hetopt.plans import Provisioning
from hetopt.schema import Instance

pytestmark = pytest.mark.targets


@pytest.mark.tool("skypilot")
def test_skypilot_reads_every_task(tmp_path: Path) -> None:
    need("sky")
    import sky

    text = instance().model_dump_json().replace('"big"', '"A100-80GB-SXM4"')
    data = Instance.model_validate_json(text.replace('"small"', '"V100-32GB-SXM2"'))
    exporting.write(tmp_path, exporting.export_plan("skypilot", data, MIXED))
    asked = {}
    for path in tmp_path.glob("*.yaml"):
        task = sky.Task.from_yaml_config(yaml.safe_load(path.read_text()))
        for one in task.resources:
            asked |= {name: (task.num_nodes, n) for name, n in one.accelerators.items()}
    assert asked == {"A100-80GB": (2, 8), "V100-32GB": (1, 4)}


@pytest.mark.tool("skypilot")
def test_skypilot_is_asked_for_machines_where_they_are_offered(tmp_path: Path) -> None:
    need("sky")
    import sky

    offers = {"8xA100@aws/us-east-1": 8, "V100@gcp-spot": 1}
    tiny = load("tiny/offers")
    one = tiny.offers[0].model_dump() | {"memory_gib": 1}
    listed = [
        {**one, "gpu": name, "gpus_per_instance": each, "quota": each}
        for name, each in offers.items()
    ]
    text = tiny.model_dump(mode="json", exclude_none=True) | {"offers": listed}
    data = Instance.model_validate_json(json.dumps(text))
    stages = [{"gpu": name, "layers": 3} for name in offers]
    plan = json.dumps({"data_parallel": 1, "stages": stages})
    trained = rented.training(data, Provisioning.model_validate_json(plan))
    exporting.write(tmp_path, exporting.export_plan("skypilot", *trained))
    asked = {}
    for path in tmp_path.glob("*.yaml"):
        task = sky.Task.from_yaml_config(yaml.safe_load(path.read_text()))
        for each in task.resources:
            ((card, count),) = each.accelerators.items()
            place = str(each.cloud).lower(), each.region, each.use_spot
            asked[card] = count, *place
    assert asked == {
        "A100": (8, "aws", "us-east-1", False),
        "V100": (1, "gcp", None, True),
    }
