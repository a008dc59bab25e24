"""What pods have besides GPUs, and what becomes of a run when one of them fails."""

from typing import Any

import pytest
import yaml
from exporter_plans import MIXED, instance

from hetopt.errors import Unsupported
from hetopt.formats import exporting, kueue
from hetopt.schema import Instance

TARGETS = ("jobset", "kueue")


def job(target: str, *options: str) -> dict[str, Any]:
    """The specification of the job."""
    files = exporting.export_plan(target, instance(), MIXED, options)
    return yaml.safe_load(files["jobset.yaml"])["spec"]


def pods(spec: dict[str, Any]) -> list[dict[str, Any]]:
    jobs = [one["template"]["spec"] for one in spec["replicatedJobs"]]
    return [one["template"]["spec"] for one in jobs]


@pytest.mark.parametrize("target", TARGETS)
def test_pods_have_shared_memory_and_go_to_machines_with_gpus(target: str) -> None:
    found = pods(job(target))
    assert len(found) == 2
    for pod in found:
        assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
        (container,) = pod["containers"]
        mounted = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
        volumes = {one.pop("name"): one for one in pod["volumes"]}
        assert volumes[mounted["/dev/shm"]] == {"emptyDir": {"medium": "Memory"}}
        # Whoever the container runs as can read the plan, and execute the program.
        assert volumes[mounted["/plan"]]["configMap"]["defaultMode"] == 0o555


# --- the label of machines -------------------------------------------------------


def sold_as(products: dict[str, str], gpu: str = "big") -> Instance:
    """The instance with products of nodes, and another name of the big GPUs."""
    tree = instance().model_dump(mode="json")
    tree["cluster"]["gpus"][gpu] = tree["cluster"]["gpus"].pop("big")
    for node in tree["cluster"]["nodes"]:
        node["product"] = products.get(node["name"])
        node["gpu"] = gpu if node["gpu"] == "big" else node["gpu"]
    return Instance.model_validate(tree, strict=False)


@pytest.mark.parametrize(
    ("products", "error"),
    [
        ({"a0": "X", "a1": "Y"}, r"several products \(X, Y\)"),
        ({"a0": "X"}, r"several products \(X, big\)"),
        ({"a0": "X # Y", "a1": "X # Y"}, "product 'X-#-Y' is not a valid label"),
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_products_that_are_no_label_of_a_type_are_refused(
    target: str, products: dict[str, str], error: str
) -> None:
    with pytest.raises(Unsupported, match=error):
        exporting.export_plan(target, sold_as(products), MIXED)


def test_kinds_of_nodes_beyond_a_workload_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kueue, "MOST", 1)
    with pytest.raises(Unsupported, match="2 kinds of nodes by GPU type and number"):
        exporting.export_plan("kueue", instance(), MIXED)
    assert exporting.export_plan("jobset", instance(), MIXED)
