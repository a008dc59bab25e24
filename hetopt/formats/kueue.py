"""Kueue: the queue that a JobSet waits in, a flavour for each GPU type.

`queue.yaml` has a `ResourceFlavor` for each GPU type, by the label of its product, a
`ClusterQueue` with as many GPUs of each as the plan takes, and a `LocalQueue`; an
administrator applies it once (https://kueue.sigs.k8s.io, v1beta2). The JobSet beside
it is that of `jobset`, submitted to the queue: it starts when all of its machines are
free.
The option `queue` is the queue's name; the others are those of `jobset`.
"""

from collections import Counter
from typing import Any

from ..plans import TrainingPlan
from ..schema import Instance
from ..text.documents import Document
from ..text.parsing import yaml_text
from . import jobset
from .contract import Held
from .exporting import allocation, kubernetes
from .exporting.allocation import Machines

HELD = Held("Kueue", "v1beta2", ("v1beta2 (ff69552)",))

OPTIONS = kubernetes.OPTIONS
QUEUE, NAME = "queue.yaml", "hetopt"
_API = "kueue.x-k8s.io/v1beta2"
MOST = 10  # sets of pods of a workload; 8 before 2026


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Those of Kubernetes; more kinds of nodes than a workload has sets of pods."""
    kinds = len(kubernetes.machines(data, plan))
    more = f"{kinds} kinds of nodes by GPU type and number of GPUs, of at most {MOST}"
    return kubernetes.refusals(data, plan) + [more] * (kinds > MOST)


def _document(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _ask(made: Machines, *, queue: str = NAME, **asked: Any) -> dict[str, str]:
    files = jobset.ask(made, queue=queue, **asked)
    counts = Counter[str]()
    found = kubernetes.machines(made.data, made.plan)
    for share in found:
        counts[share.gpu] += share.gpus * len(share.nodes)
    labels = {share.gpu: kubernetes.selector(share) for share in found}
    flavours = {gpu: f"{queue}-{kubernetes.plain(gpu)}" for gpu in counts}
    group = {
        "coveredResources": [kubernetes.GPU],
        "flavors": [
            {
                "name": flavours[gpu],
                "resources": [{"name": kubernetes.GPU, "nominalQuota": count}],
            }
            for gpu, count in counts.items()
        ],
    }
    documents = [
        *(
            _document("ResourceFlavor", flavour, {"nodeLabels": labels[gpu]})
            for gpu, flavour in flavours.items()
        ),
        _document(
            "ClusterQueue", queue, {"namespaceSelector": {}, "resourceGroups": [group]}
        ),
        _document("LocalQueue", queue, {"clusterQueue": queue}),
    ]
    whole = {"apiVersion": "v1", "kind": "List", "items": documents}
    return {**files, QUEUE: yaml_text(whole, width=88)}


export = allocation.exporter(_ask, kubernetes.WORDS)
