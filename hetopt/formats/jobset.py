"""Kubernetes: a JobSet with one replicatedJob for each GPU type.

A pod is a node of the plan: it asks for the GPUs of that node, by the label
`nvidia.com/gpu.product` that NVIDIA's feature discovery sets, and shares its machine
with no other pod of the run. The label's value is the product of the catalogue, with
dashes for blanks, or else the instance's name of the type. The plan is a ConfigMap;
`launch.sh` makes it and puts IMAGE into `jobset.yaml`
(https://jobset.sigs.k8s.io, v1alpha2).
"""

from typing import Any

from ..catalogue import known
from ..plans import TrainingPlan
from ..schema import Instance
from ..text.parsing import yaml_text
from .exporting import allocation
from .exporting.allocation import PLAN, Share, plan_text, shares

JOBSET, LAUNCH, NAME = "jobset.yaml", "launch.sh", "hetopt"
LARGEST = 2**20  # bytes of a ConfigMap
_PRODUCT, _GPU, _HOST = (
    "nvidia.com/gpu.product",
    "nvidia.com/gpu",
    "kubernetes.io/hostname",
)
_TYPE = "hetopt/gpu-type"
_RUN = """\
names=($NODES)
exec "$TRAIN" /plan/plan.json "${names[$JOB_COMPLETION_INDEX]}"
"""
_LAUNCH = """\
#!/usr/bin/env bash
# Start the JobSet with the container IMAGE, which holds the program TRAIN; further
# arguments are passed to kubectl.
set -euo pipefail
cd "$(dirname "$0")"
kubectl create configmap hetopt-plan --from-file=plan.json --dry-run=client -o yaml \\
  | kubectl apply -f - "$@"
text="$(<jobset.yaml)"
# They stand in single quotes of YAML, in which only such a quote is written otherwise.
shopt -u patsub_replacement 2> /dev/null || true
quote="'" image="${IMAGE:?}" train="${TRAIN:-./train.sh}"
text="${text//@IMAGE@/${image//$quote/$quote$quote}}"
text="${text//@TRAIN@/${train//$quote/$quote$quote}}"
kubectl apply -f - "$@" <<< "$text"
"""


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Names that are none; GPUs not of NVIDIA; a plan too large for a ConfigMap."""
    found = allocation.refusals(data, plan)
    for share in shares(data, plan):
        card = known(share.gpu)
        if card is not None and card.maker != "NVIDIA":
            found.append(f"GPU type {share.gpu!r} is not NVIDIA's")
        elif card is not None and card.product is None:
            found.append(f"what nvidia-smi calls GPU type {share.gpu!r} is not known")
    size = len(plan_text(data, plan).encode())
    if size > LARGEST:
        found.append(f"the plan has {size} bytes, a ConfigMap at most {LARGEST}")
    return found


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`jobset.yaml`, `launch.sh` and `plan.json`."""
    found = shares(data, plan)
    head = f"{NAME}-{found[0].label}-0-0.{NAME}"
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": NAME},
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": NAME},
            "replicatedJobs": [
                {
                    "name": share.label,
                    "replicas": 1,
                    "template": {"spec": _job(share, head)},
                }
                for share in found
            ],
        },
    }
    text = yaml_text(jobset, width=88)
    return {JOBSET: text, LAUNCH: _LAUNCH, PLAN: plan_text(data, plan)}


def _job(share: Share, head: str) -> dict[str, Any]:
    count = len(share.nodes)
    container = {
        "name": "train",
        "image": "@IMAGE@",
        "command": ["bash", "-ec", _RUN],
        "env": [
            {"name": name, "value": value}
            for name, value in {
                "MASTER_ADDR": head,
                "MASTER_PORT": "29500",
                "NODES": " ".join(share.nodes),
                "TRAIN": "@TRAIN@",
            }.items()
        ],
        "resources": {"limits": {_GPU: share.gpus}},
        "volumeMounts": [{"name": "plan", "mountPath": "/plan"}],
    }
    alone = {
        "labelSelector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": NAME}},
        "topologyKey": _HOST,
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {_PRODUCT: _product(share.gpu)},
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [alone]
            }
        },
        "containers": [container],
        "volumes": [{"name": "plan", "configMap": {"name": "hetopt-plan"}}],
    }
    return {
        "parallelism": count,
        "completions": count,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {
            "metadata": {"annotations": {_TYPE: share.gpu}},
            "spec": pod,
        },
    }


def _product(gpu: str) -> str:
    card = known(gpu)
    product = None if card is None else card.product
    return gpu if product is None else product.replace(" ", "-")
