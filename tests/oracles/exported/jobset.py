"""A JobSet: the machines that its pods ask for, and the plan beside them."""

from typing import Any

from hetopt.catalogue import find_gpu
from hetopt.text.parsing import parse_tree

from .machines import PLAN, Share, disagreements, read

__all__ = ["read", "validate"]

JOBSET, LAUNCH = "jobset.yaml", "launch.sh"
_PRODUCT, _GPU = "nvidia.com/gpu.product", "nvidia.com/gpu"
_TYPE = "hetopt/gpu-type"


def _product(gpu: str) -> str:
    card = find_gpu(gpu)
    return gpu if card is None else card.product.replace(" ", "-")


def validate(files: dict[str, str]) -> list[str]:
    """Where the pods are other machines than the plan's, or forget the plan."""
    tree = parse_tree(files[JOBSET], JOBSET, is_json=False)
    jobs = [job["template"]["spec"] for job in tree["spec"]["replicatedJobs"]]
    broken = disagreements(files, [_asked(job) for job in jobs])
    for job in jobs:
        pod = job["template"]["spec"]
        gpu = _asked(job).gpu
        if pod["nodeSelector"] != {_PRODUCT: _product(gpu)}:
            broken.append(f"the pods of {gpu} select other machines")
        if {job["parallelism"], job["completions"]} != {len(_asked(job).nodes)}:
            broken.append(f"{gpu} has not one pod for each node")
        if f"/{PLAN} " not in pod["containers"][0]["command"][2]:
            broken.append(f"the pods of {gpu} do not name {PLAN}")
    if f"--from-file={PLAN}" not in files[LAUNCH]:
        broken.append(f"{LAUNCH} does not name {PLAN}")
    return broken


def _asked(job: dict[str, Any]) -> Share:
    template = job["template"]
    container = template["spec"]["containers"][0]
    told = {one["name"]: one["value"] for one in container["env"]}
    return Share(
        template["metadata"]["annotations"][_TYPE],
        container["resources"]["limits"][_GPU],
        tuple(told["NODES"].split()),
    )
