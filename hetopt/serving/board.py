"""Instances and plans as the page shows them: what the command line says of them."""

from collections import Counter

from ..api import margins
from ..plans import TrainingPlan
from ..problems import Evaluation
from ..report import figures, pipelines, results
from ..result import Method, Result, Status, Stop
from ..schema import Instance
from ..text.documents import Document


def of_instance(instance: Instance) -> Document:
    """Return what there is: nodes, the model and the workload."""
    cluster, work = instance.planned_cluster, instance.workload
    alike = Counter((node.count, node.gpu) for node in cluster.nodes)
    return {
        "digest": instance.digest,
        "name": instance.name,
        "source": instance.source,
        "gpus": cluster.gpu_count,
        "nodes": [f"{n} × {count} {gpu}" for (count, gpu), n in alike.items()],
        "layers": instance.model.layers,
        "parameters": instance.model.total_parameters,
        "global_batch": work.global_batch,
        "sequence_length": work.sequence_length,
        "runs_on": work.runs_on,
    }


def of_plan(instance: Instance, plan: TrainingPlan, judged: Evaluation) -> Document:
    """Return the table, totals and faults of a plan that was judged."""
    table = results.table(instance, plan, judged.parts) if judged.objective else None
    return {
        "objective_us": judged.objective,
        "valid": judged.valid,
        "headings": [] if table is None else list(table.headings),
        "rows": [] if table is None else [[c.text for c in row] for row in table.rows],
        "totals": [*results.totals(judged.parts)],
        "problems": results.problems(judged.violations),
        "warnings": list(margins.warnings(instance, judged)),
    }


def picture(instance: Instance, plan: TrainingPlan) -> bytes:
    """Return the drawing of a valid plan as PNG, as reports have it."""
    method = Method("the page", "given")
    found = Result(
        "training_plan", instance, method, Status.FEASIBLE, Stop.FINISHED, plan=plan
    )
    palette = pipelines.colours(instance.planned_cluster.gpus)
    return figures.picture(lambda: pipelines.drawing(found, palette), "png")
