"""Exporters of Kubernetes share this: pods by product, a ConfigMap, `launch.sh`.

A pod is a node of the plan: it asks for the GPUs of that node, by the label
`nvidia.com/gpu.product` that NVIDIA's feature discovery sets, and shares its machine
with no other pod of the run. The label's value is the node's `product`, which a list
of hosts told, or that of the catalogue, with dashes for blanks, or else the instance's
name of the type. The plan and `train.sh`, which runs hetopt's executor, are a
ConfigMap; `launch.sh` makes it and puts IMAGE and ARGS into the job's file. Both are
named by the plan, so that runs of different plans stand side by side; the option `name`
names them otherwise. Data and states are not its to place: mount them.

A pod tolerates the taints `nvidia.com/gpu` of machines with GPUs, and has shared memory
beyond a container's 64 MiB.
"""

import re
from hashlib import sha256

from ...catalogue import find_gpu
from ...errors import InstanceError
from ...plans import TrainingPlan
from ...schema import Instance
from ...text.documents import Document
from . import allocation, programs
from .allocation import LABEL, Machines, Share, Word, plan_text, shares

LAUNCH = "launch.sh"
LARGEST = 2**20  # bytes of a ConfigMap
LONGEST = 63  # letters of a pod's name
_TAIL = len("-0-00000-xxxxx")  # what JobSet and Job add to the name of a pod
_NAMED = "small letters, digits and dashes, a letter first"
WORDS = {
    "name": Word(str, r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?", _NAMED),
    "queue": Word(str, r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", _NAMED),
    "restarts": Word(int, r"[0-9]{1,4}", "a number from 0 to 9999"),
}
OPTIONS = allocation.options(WORDS)
_PRODUCT, GPU = "nvidia.com/gpu.product", "nvidia.com/gpu"
_HOST = "kubernetes.io/hostname"
TYPE = "hetopt/gpu-type"
_FOLDER, _EXECUTABLE = "/plan", 0o555
_LAUNCH = """\
#!/usr/bin/env bash
# Start {job} with the container IMAGE. TRAIN, a program in IMAGE, is started in each
# pod; by default it is /plan/train.sh, which has IMAGE's hetopt run with the words in
# ARGS. Further arguments are passed to kubectl.
set -euo pipefail
cd "$(dirname "$0")"
{train}image="${{IMAGE:?name the image of the containers}}" args="${{ARGS:-}}"
kubectl create configmap {name}-plan {files} \\
  --dry-run=client -o yaml | kubectl apply -f - "$@"
text="$(<{job})"
# They stand in single quotes of YAML, in which only such a quote is written otherwise.
shopt -u patsub_replacement 2> /dev/null || true
quote="'"
text="${{text//@IMAGE@/${{image//$quote/$quote$quote}}}}"
text="${{text//@TRAIN@/${{train//$quote/$quote$quote}}}}"
text="${{text//@ARGS@/${{args//$quote/$quote$quote}}}}"
kubectl apply -f - "$@" <<< "$text"
"""


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Names that are none; GPUs not of NVIDIA; a plan too large for a ConfigMap."""
    found = allocation.refusals(data, plan)
    products: dict[str, set[str]] = {}
    for share in machines(data, plan):
        products.setdefault(share.gpu, set()).add(share.called or "")
    for gpu, labels in products.items():
        card = find_gpu(gpu)
        if card is not None and card.maker != "NVIDIA":
            found.append(f"GPU type {gpu!r} is not NVIDIA's")
        elif "" in labels:
            found.append(f"nvidia-smi's name of GPU type {gpu!r} is not known")
        elif len(labels) > 1:
            listed = ", ".join(sorted(labels))
            found.append(
                f"nodes of GPU type {gpu!r} have several products ({listed}): make "
                "each a type in cluster.gpus"
            )
        found += [
            f"product {label!r} is not a valid label: correct it in cluster.nodes"
            for label in sorted(labels)
            if label and label != gpu and not re.fullmatch(LABEL, label)
        ]
    texts = (plan_text(data, plan), *programs.program(data, plan).files.values())
    size = sum(len(text.encode()) for text in texts)
    if size > LARGEST:
        found.append(f"the plan has {size} bytes, a ConfigMap at most {LARGEST}")
    return found


def called(plan: TrainingPlan, found: list[Share], name: str | None) -> str:
    """Return the name of a run: that which is told, else one of the plan's own.

    Raises `InstanceError` where the names of its pods are too long.
    """
    decisions = plan.model_dump_json().encode()
    run = name or f"hetopt-{sha256(decisions).hexdigest()[:8]}"
    for share in found:
        if len(f"{run}-{share.label}") + _TAIL > LONGEST:
            raise InstanceError(
                f"option name: pods of {run}-{share.label} have more than {LONGEST} "
                "letters; give a shorter name"
            )
    return run


def launch(made: Machines, name: str, job: str) -> dict[str, str]:
    """Return the script that applies the plan and the job of a name."""
    text = _LAUNCH.format(
        name=name,
        job=job,
        train=made.program.chosen(at=_FOLDER),
        files=" ".join(f"--from-file={file}" for file in made.files),
    )
    return {LAUNCH: text}


def pod(
    share: Share, head: str, called: str, run: str, labels: dict[str, str]
) -> Document:
    """Return a pod of a share, on a machine with no other pod of these labels."""
    told = {"MASTER_ADDR": head, "MASTER_PORT": "29500", "NODES": " ".join(share.nodes)}
    told |= {"TRAIN": "@TRAIN@", "ARGS": "@ARGS@"}
    container = {
        "name": "train",
        "image": "@IMAGE@",
        "command": ["bash", "-ec", run],
        "env": [{"name": name, "value": value} for name, value in told.items()],
        "resources": {"limits": {GPU: share.gpus}},
        "volumeMounts": [
            {"name": "plan", "mountPath": _FOLDER},
            {"name": "shared", "mountPath": "/dev/shm"},
        ],
    }
    alone = {"labelSelector": {"matchLabels": labels}, "topologyKey": _HOST}
    return {
        "restartPolicy": "Never",
        "nodeSelector": selector(share),
        # Machines with GPUs usually keep other pods away by a taint of this name.
        "tolerations": [{"key": GPU, "operator": "Exists"}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [alone]
            }
        },
        "containers": [container],
        "volumes": [
            {
                "name": "plan",
                "configMap": {"name": f"{called}-plan", "defaultMode": _EXECUTABLE},
            },
            # Ranks of a pod exchange by shared memory, 64 MiB of it otherwise.
            {"name": "shared", "emptyDir": {"medium": "Memory"}},
        ],
    }


def machines(data: Instance, plan: TrainingPlan) -> list[Share]:
    """Return the machines of a plan, called as their label says."""
    return shares(data, plan, lambda node: label_of(node.gpu, node.product))


def label_of(gpu: str, product: str | None = None) -> str | None:
    """Return the label of machines with a GPU type: their product, or else the card's.

    A type that is no card of the catalogue is a label itself.
    """
    card = find_gpu(gpu)
    own = gpu if card is None else card.product
    return (product or own or "").replace(" ", "-") or None


def selector(share: Share) -> dict[str, str]:
    """Return the label of the machines of a share."""
    assert share.called is not None  # it is refused else
    return {_PRODUCT: share.called}


def plain(gpu: str) -> str:
    """Return a GPU type in the letters of a name."""
    return re.sub(r"[^a-z0-9-]", "-", gpu.lower()).strip("-") or "gpu"
