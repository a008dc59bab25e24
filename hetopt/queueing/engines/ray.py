"""Ray: nodes by their labels, jobs by Ray's own job submission.

Nodes are started with `ray start --labels="gpu-type=TYPE"`, TYPE being a card of the
catalogue; a node's name is its address and the beginning of its number. Others hold the
GPUs that Ray says are not available, less this queue's own. A job is `launch.py` of
`hetopt export --to ray`, whose placement group is by type: Ray chooses among nodes of
one. The queue's key is Ray's submission id. Ray ends a job that it is asked to stop
within seconds, so that steps after the last save are done again.

The option `address` is that of Ray's head, as RAY_ADDRESS; needs `pip install
'ray[default]'`, in the Python that runs hetopt.
"""

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import EngineFailed
from ...text.documents import Fields
from . import Engine, Launch, Machines, Seen, State, others, output_of

OPTIONS: dict[str, object] = {"address": str}
LABEL = "gpu-type"
_REMEDY = "start Ray with its dashboard, and give -o address=HOST:PORT or RAY_ADDRESS"
_STATES: dict[str, State] = {
    **{"PENDING": "waiting", "RUNNING": "running", "STOPPED": "cancelled"},
    **{"SUCCEEDED": "done", "FAILED": "failed"},
}
# Ray is asked in a process of its own, which it may fill with threads and messages.
_ASK = """\
import json, sys, ray
from ray.job_submission import JobSubmissionClient
asked = json.loads(sys.argv[1])
ray.init(address=asked["address"], log_to_driver=False, logging_level="ERROR")
url = ray._private.worker.global_worker.node.address_info["webui_url"]
client = JobSubmissionClient("http://" + url)
def nodes():
    from ray._private.state import available_resources_per_node
    free = available_resources_per_node()
    return [
        {
            "name": one["NodeManagerAddress"] + "-" + one["NodeID"][:6],
            "gpus": one["Resources"].get("GPU", 0),
            "free": free.get(one["NodeID"], {}).get("GPU", 0),
            "type": one.get("Labels", {}).get(asked["label"]),
        }
        for one in ray.nodes() if one["Alive"]
    ]
def jobs():
    return [
        {
            "key": one.submission_id,
            "state": getattr(one.status, "value", str(one.status)),
            "why": one.message or "",
            "start": one.start_time,
            "end": one.end_time,
        }
        for one in client.list_jobs() if one.submission_id
    ]
def launch():
    return client.submit_job(
        entrypoint=asked["entry"],
        submission_id=asked["key"],
        runtime_env={"env_vars": asked["env"]},
    )
def end():
    return client.stop_job(asked["key"])
print("HETOPT " + json.dumps({"nodes": nodes, "jobs": jobs, "launch": launch,
                              "end": end}[asked["do"]]()))
"""


def engine(options: Fields, folder: Path) -> "Ray":
    """Return the engine of a Ray cluster that runs."""
    return Ray(options.get("address") or os.environ.get("RAY_ADDRESS", "auto"))


class Ray(Engine):
    """A Ray cluster, by its own records of nodes and jobs."""

    target = "ray"

    def __init__(self, address: str) -> None:
        self._address = address

    def _ask(self, do: str, **more: object) -> Any:
        """Return what Ray says; `EngineFailed` where it cannot be reached."""
        asked = {"do": do, "address": self._address, "label": LABEL, **more}
        text = output_of([sys.executable, "-c", _ASK, json.dumps(asked)], _REMEDY)
        found = re.search(r"^HETOPT (.*)$", text, re.MULTILINE)
        if found is None:
            raise EngineFailed(f"ray: found no answer; {_REMEDY}")
        return json.loads(found[1])

    def machines(self, ours: Mapping[str, int]) -> Machines:
        """Return the nodes with GPUs and a label, and the GPUs that others hold."""
        lines, taken = [], dict[str, int]()
        for one in self._ask("nodes"):
            gpus = int(one["gpus"])
            if not gpus or one["type"] is None:
                continue
            lines.append(f"{one['name']} slots={gpus} type={one['type']}\n")
            taken[one["name"]] = gpus - int(one["free"])
        if not lines:
            raise EngineFailed(
                f"ray: found no node with GPUs and a label {LABEL}, expected some; "
                f"start nodes with ray start --labels={LABEL}=TYPE"
            )
        return Machines("hostfile", "".join(lines), others(taken, ours))

    def find(self, launch: Launch) -> str | None:
        """Return the attempt's key where Ray has a job of it."""
        keys = [one["key"] for one in self._ask("jobs")]
        return launch.key if launch.key in keys else None

    def launch(self, launch: Launch) -> str:
        """Submit `launch.py` in the attempt's folder, which all nodes see."""
        log = launch.log
        entry = f"bash -c 'cd {launch.folder} && exec python launch.py > {log} 2>&1'"
        env = {"ARGS": " ".join(launch.words), "MASTER_PORT": str(launch.port)}
        env |= {"RAY_DEDUP_LOGS": "0"}  # steps look alike
        kept = ("PATH", "TRAIN", "WAIT_S", "OMP_NUM_THREADS")
        env |= {name: os.environ[name] for name in kept if name in os.environ}
        self._ask("launch", key=launch.key, entry=entry, env=env)
        return launch.key

    def look(self, attempts: Mapping[str, Path]) -> dict[str, Seen]:
        """Return what Ray's list of jobs says of attempts."""
        return {
            one["key"]: Seen(
                _STATES.get(one["state"], "waiting"),
                "" if one["state"] in ("RUNNING", "SUCCEEDED") else one["why"][:200],
                *(one[when] / 1000 if one[when] else None for when in ("start", "end")),
            )
            for one in self._ask("jobs")
            if one["key"] in attempts
        }

    def end(self, handle: str) -> None:
        """Ask Ray to stop a job."""
        self._ask("end", key=handle)
