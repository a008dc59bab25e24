"""What pods have besides GPUs, and what becomes of a run when one of them fails."""

from typing import Any

import pytest
import yaml
from exporter_plans import MIXED, instance

from hetopt.errors import InstanceError
from hetopt.formats import exporting

TARGETS = ("jobset", "kueue", "volcano")


def job(target: str, *options: str) -> dict[str, Any]:
    """The specification of the job."""
    files = exporting.exported(target, instance(), MIXED, options)
    name = "volcano.yaml" if target == "volcano" else "jobset.yaml"
    spec: dict[str, Any] = yaml.safe_load(files[name])["spec"]
    return spec


def pods(spec: dict[str, Any]) -> list[dict[str, Any]]:
    jobs = [one["template"]["spec"] for one in spec.get("replicatedJobs", [])]
    return [one["template"]["spec"] for one in [*jobs, *spec.get("tasks", [])]]


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


@pytest.mark.parametrize("target", ["jobset", "kueue"])
def test_a_jobset_says_how_often_it_starts_again(target: str) -> None:
    assert job(target)["failurePolicy"] == {"maxRestarts": 0}
    assert job(target, "restarts=2")["failurePolicy"] == {
        "maxRestarts": 2,
        "restartStrategy": "BlockingRecreate",
    }


def test_a_job_of_volcano_ends_or_starts_again() -> None:
    events = ["PodFailed", "PodEvicted"]
    once, thrice = job("volcano"), job("volcano", "restarts=2")
    assert once["policies"] == [{"events": events, "action": "AbortJob"}]
    assert thrice["policies"] == [{"events": events, "action": "RestartJob"}]
    assert thrice["maxRetry"] == 3


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("number", ["-1", "10000"])
def test_restarts_are_a_number_of_times(target: str, number: str) -> None:
    with pytest.raises(InstanceError, match="option restarts: found"):
        job(target, f"restarts={number}")


def test_the_queue_of_kueue_is_of_a_version_that_is_kept() -> None:
    files = exporting.exported("kueue", instance(), MIXED)
    trees = yaml.safe_load(files["queue.yaml"])["items"]
    assert {tree["apiVersion"] for tree in trees} == {"kueue.x-k8s.io/v1beta2"}
