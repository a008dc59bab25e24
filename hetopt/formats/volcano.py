"""Volcano: a job with a task for each GPU type, whose pods start together.

A pod is a node of the plan, as in `jobset`: it asks for the GPUs of that node by the
label of its product, and shares its machine with no other pod of the run.
`minAvailable` is the number of all pods: Volcano starts none before it can start all,
and ends the job where one fails or is evicted, or starts all again (`restarts`). The
names of pods are resolved by its `svc` plug-in (https://volcano.sh,
batch.volcano.sh/v1alpha1). Options are those of `jobset`.
"""

from ..text.parsing import yaml_text
from .contract import Held
from .documents import Document
from .exporting import allocation, kubernetes
from .exporting.allocation import Machines, Share

HELD = Held("Volcano", "v1alpha1", ("v1alpha1 (ed72c7c)",))

OPTIONS = kubernetes.OPTIONS
JOB = "volcano.yaml"
_RUN = """\
names=($NODES)
exec "$TRAIN" /plan/plan.json "${names[${VC_TASK_INDEX:-$VK_TASK_INDEX}]}"
"""
refusals = kubernetes.refusals


def _ask(
    made: Machines, *, name: str | None = None, queue: str = "", restarts: int = 0
) -> dict[str, str]:
    """Return `volcano.yaml` and `launch.sh`."""
    found = kubernetes.machines(made.data, made.plan)
    called = kubernetes.called(made.plan, found, name)
    head = f"{called}-{found[0].label}-0.{called}"
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": called},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": sum(len(share.nodes) for share in found),
            **({"queue": queue} if queue else {}),
            "plugins": {"svc": [], "env": []},
            # It is failures that Volcano counts, and the last of them ends the job.
            **({"maxRetry": restarts + 1} if restarts else {}),
            "policies": [
                {
                    "events": ["PodFailed", "PodEvicted"],
                    "action": "RestartJob" if restarts else "AbortJob",
                }
            ],
            "tasks": [_task(share, head, called) for share in found],
        },
    }
    return {
        JOB: yaml_text(job, width=88),
        **kubernetes.launch(made, called, JOB),
    }


def _task(share: Share, head: str, called: str) -> Document:
    alone = {"volcano.sh/job-name": called}
    pod = kubernetes.pod(share, head, called, _RUN, alone)
    return {
        "name": share.label,
        "replicas": len(share.nodes),
        "template": {
            "metadata": {"annotations": {kubernetes.TYPE: share.gpu}},
            "spec": pod,
        },
    }


export = allocation.exporter(_ask, kubernetes.WORDS)
