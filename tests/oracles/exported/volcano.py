"""A job of Volcano: the machines that its pods ask for, and the plan beside them."""

from hetopt.text.parsing import parse_tree

from .jobset import _asked, _product
from .machines import PLAN, disagreements, read

__all__ = ["read", "validate"]

JOB, LAUNCH = "volcano.yaml", "launch.sh"


def validate(files: dict[str, str]) -> list[str]:
    """Where the pods are other machines than the plan's, or start apart."""
    spec = parse_tree(files[JOB], JOB, is_json=False)["spec"]
    asked = [_asked(task) for task in spec["tasks"]]
    broken = disagreements(files, asked)
    for task, share in zip(spec["tasks"], asked, strict=True):
        pod = task["template"]["spec"]
        if pod["nodeSelector"] != {"nvidia.com/gpu.product": _product(share.gpu)}:
            broken.append(f"the pods of {share.gpu} select other machines")
        if task["replicas"] != len(share.nodes):
            broken.append(f"{share.gpu} has not one pod for each node")
    if spec["minAvailable"] != sum(task["replicas"] for task in spec["tasks"]):
        broken.append("some pods start before the others can")
    if f"--from-file={PLAN}" not in files[LAUNCH] or JOB not in files[LAUNCH]:
        broken.append(f"{LAUNCH} does not name {PLAN} and {JOB}")
    return broken
