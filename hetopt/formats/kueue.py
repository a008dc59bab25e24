"""Kueue: the queue that a JobSet waits in, a flavour for each GPU type.

`queue.yaml` has a `ResourceFlavor` for each GPU type, by the label of its product, a
`ClusterQueue` with as many GPUs of each as the plan takes, and a `LocalQueue`; an
administrator applies it once (https://kueue.sigs.k8s.io, v1beta2). The JobSet beside
it is that of `jobset`, submitted to the queue: it starts when all of its machines are
free.
The option `queue` is the queue's name; the others are those of `jobset`.
"""

from typing import Any

from ..plans import TrainingPlan
from ..schema import Instance
from ..text.parsing import yaml_text
from . import jobset
from .contract import Held

HELD = Held("Kueue", "v1beta2", ("v1beta2 (ff69552)",))

OPTIONS = jobset.OPTIONS
QUEUE, NAME = "queue.yaml", "hetopt"
_API = "kueue.x-k8s.io/v1beta2"
refusals = jobset.refusals


def export(
    data: Instance, plan: TrainingPlan, *, queue: str = NAME, **asked: Any
) -> dict[str, str]:
    """`queue.yaml`, and the files of `jobset`."""
    files = jobset.export(data, plan, queue=queue, **asked)
    counts: dict[str, int] = {}
    found = jobset.machines(data, plan)
    for share in found:
        counts[share.gpu] = counts.get(share.gpu, 0) + share.gpus * len(share.nodes)
    labels = {share.gpu: jobset.selector(share) for share in found}
    flavours = {gpu: f"{queue}-{jobset.plain(gpu)}" for gpu in counts}
    documents = [
        *(
            {
                "apiVersion": _API,
                "kind": "ResourceFlavor",
                "metadata": {"name": flavour},
                "spec": {"nodeLabels": labels[gpu]},
            }
            for gpu, flavour in flavours.items()
        ),
        {
            "apiVersion": _API,
            "kind": "ClusterQueue",
            "metadata": {"name": queue},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [
                    {
                        "coveredResources": [jobset.GPU],
                        "flavors": [
                            {
                                "name": flavours[gpu],
                                "resources": [
                                    {"name": jobset.GPU, "nominalQuota": count}
                                ],
                            }
                            for gpu, count in counts.items()
                        ],
                    }
                ],
            },
        },
        {
            "apiVersion": _API,
            "kind": "LocalQueue",
            "metadata": {"name": queue},
            "spec": {"clusterQueue": queue},
        },
    ]
    whole = {"apiVersion": "v1", "kind": "List", "items": documents}
    return {**files, QUEUE: yaml_text(whole, width=88)}
