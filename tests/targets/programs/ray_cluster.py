"""Run `launch.py` of this folder on raylets of this machine; what each bundle was told.

Arguments: pairs of a label and GPUs, a raylet each. GPUs are of the name alone.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from ray.cluster_utils import Cluster

LABEL = "gpu-type"


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    for kind, gpus in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        cluster.add_node(num_cpus=1, num_gpus=int(gpus), labels={LABEL: kind})
    cluster.wait_for_nodes()
    told = Path.cwd() / "told.jsonl"
    told.touch()
    env = {**os.environ, "RAY_ADDRESS": cluster.address, "WAIT_S": "20"}
    ended = subprocess.run(
        [sys.executable, "launch.py"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    cluster.shutdown()
    rows = [json.loads(line) for line in told.read_text().splitlines()]
    found = {"code": ended.returncode, "err": ended.stderr[-2000:], "rows": rows}
    sys.stdout.write(json.dumps(found) + "\n")


main()
