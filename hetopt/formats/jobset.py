"""Kubernetes: a JobSet with one replicatedJob for each GPU type.

A pod is a node of the plan (`exporting.kubernetes`); `launch.sh` puts IMAGE and ARGS
into `jobset.yaml` (https://jobset.sigs.k8s.io, v1alpha2). The option `train` names
another program than `train.sh`, `name` the run, and `queue` the queue of Kueue that the
JobSet is submitted to. Where a pod fails, the run fails; with `restarts` all start
again, so many times, and go on from the states of `--checkpoint` in ARGS.
"""

from ..text.documents import Document
from ..text.parsing import yaml_text
from .contract import Held
from .exporting import allocation, kubernetes
from .exporting.allocation import Machines, Share

HELD = Held("JobSet", "v1alpha2", ("v1alpha2 (08dfbdf)",), program="kubectl")
JOBSET = "jobset.yaml"
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
_RUN = """\
names=($NODES)
exec "$TRAIN" /plan/plan.json "${names[$JOB_COMPLETION_INDEX]}"
"""
refusals = kubernetes.refusals
OPTIONS = kubernetes.OPTIONS


def ask(
    made: Machines, *, name: str | None = None, queue: str = "", restarts: int = 0
) -> dict[str, str]:
    """Return `jobset.yaml` and `launch.sh`."""
    found = kubernetes.machines(made.data, made.plan)
    run = kubernetes.called(made.plan, found, name)
    head = f"{run}-{found[0].label}-0-0.{run}"
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": run, **({"labels": {QUEUE_NAME: queue}} if queue else {})},
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": run},
            # No pod of a new attempt may meet one of the last.
            "failurePolicy": {"maxRestarts": restarts}
            | ({"restartStrategy": "BlockingRecreate"} if restarts else {}),
            "replicatedJobs": [
                {
                    "name": share.label,
                    "replicas": 1,
                    "template": {"spec": _job(share, head, run)},
                }
                for share in found
            ],
        },
    }
    return {JOBSET: yaml_text(jobset, width=88), **kubernetes.launch(made, run, JOBSET)}


def _job(share: Share, head: str, called: str) -> Document:
    count = len(share.nodes)
    alone = {"jobset.sigs.k8s.io/jobset-name": called}
    return {
        "parallelism": count,
        "completions": count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {
            "metadata": {"annotations": {kubernetes.TYPE: share.gpu}},
            "spec": kubernetes.pod(share, head, called, _RUN, alone),
        },
    }


export = allocation.exporter(ask, kubernetes.WORDS)
