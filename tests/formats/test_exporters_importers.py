"""What exporters write, importers of the same formats read: two readings, one plan."""

from pathlib import Path
from typing import Any

from exporter_plans import asymmetric, instance_for

from hetopt import formats
from hetopt.formats import exporting
from hetopt.problems.training_plan.shapes import normal

HETERO = {"machines": "a0,a1", "micro_batches": "5,3", "micro_batch_size": 4}


def test_an_importer_reads_the_plan_that_was_exported(tmp_path: Path) -> None:
    importer: Any = formats.importer("hexiscale_plan")
    data, plan = instance_for("hexiscale"), asymmetric()
    exporting.write(tmp_path, exporting.export_plan("hexiscale", data, plan))
    (claim,) = importer.claims(tmp_path / "hetero_configs.json", data, **HETERO)
    assert normal(claim.plan) == normal(plan)
