"""Raylets of this machine that stay until standard input ends; says their address.

Arguments: pairs of a label and GPUs, a raylet each. GPUs are of the name alone.
"""

import sys

from ray.cluster_utils import Cluster

LABEL = "gpu-type"


def main() -> None:
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 4, "num_gpus": 0, "include_dashboard": True},
    )
    for kind, gpus in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        cluster.add_node(num_cpus=1, num_gpus=int(gpus), labels={LABEL: kind})
    cluster.wait_for_nodes()
    sys.stdout.write(f"address {cluster.address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    cluster.shutdown()


main()
