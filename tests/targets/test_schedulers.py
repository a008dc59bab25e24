"""Tasks of SkyPilot as its own parser reads them."""

from pathlib import Path

import pytest
import yaml
from conftest import need
from exporter_plans import MIXED, instance

from hetopt.formats import exporting
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
