"""What exporters write, importers of the same formats read: two readings, one plan."""

from pathlib import Path
from typing import Any

import pytest
from exporter_plans import ALONE, asymmetric, instance_for

from hetopt import formats
from hetopt.formats import exporting
from hetopt.plans import TrainingPlan
from hetopt.problems.training_plan.shapes import normal

HETERO = {"machines": "a0,a1", "micro_batches": "5,3", "micro_batch_size": 4}


@pytest.mark.parametrize(
    ("target", "file", "plan", "options"),
    [
        ("hexiscale", "hetero_configs.json", asymmetric(), HETERO),
        ("sailor", "sailor_plan.json", ALONE[0], {}),
    ],
)
def test_an_importer_reads_the_plan_that_was_exported(
    target: str, file: str, plan: TrainingPlan, options: dict[str, Any], tmp_path: Path
) -> None:
    importer: Any = formats.importer(f"{target}_plan")
    data = instance_for(target)
    exporting.write(tmp_path, exporting.export_plan(target, data, plan))
    (claim,) = importer.claims(tmp_path / file, data, **options)
    assert normal(claim.plan) == normal(plan)
