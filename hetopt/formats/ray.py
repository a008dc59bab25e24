"""Ray: a placement group with a bundle for each node, by the label of its GPU type.

`launch.py` makes the group (`bundles`, `bundle_label_selector`, every bundle on a node
of its own) and starts the training program in each bundle. Nodes are started with
`ray start --labels="gpu-type=TYPE"`, TYPE being the instance's name: Ray's own label
`ray.io/accelerator-type` does not tell cards of one name and different memory apart.

Ray waits for ever for bundles that no node can hold: `launch.py` waits for WAIT_S
seconds and then says which labels and GPUs it asked for and which nodes there are.
"""

from typing import Any

from ..plans import TrainingPlan
from ..schema import Instance
from .exporting import allocation
from .exporting.allocation import PLAN, plan_text, shares

refusals = allocation.refusals
LAUNCH, LABEL = "launch.py", "gpu-type"
_LAUNCH = '''\
"""Start TRAIN on every node of a plan of hetopt: `python launch.py`, in this folder.

TRAIN is a program in this folder, by default ./train.sh; it gets plan.json and the name
of its node, and MASTER_ADDR and MASTER_PORT. Ray takes the folder to the nodes. Where
nodes are still to be started, WAIT_S is how many seconds to wait for them, else 8.
"""

import os
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

PLAN = "plan.json"
NODES = {nodes}
BUNDLES = {bundles}
LABELS = {labels}
NAME = "{label}"


def address():
    return ray.util.get_node_ip_address()


def train(node, head, port, program):
    told = {{**os.environ, "MASTER_ADDR": head, "MASTER_PORT": port}}
    subprocess.run([program, PLAN, node], env=told, check=True)


def lacking():
    """What was asked for, and the nodes that there are."""
    pairs = [(label[NAME], bundle["GPU"]) for bundle, label in zip(BUNDLES, LABELS)]
    asked = [
        f"{{pairs.count((kind, gpus))}} of {{NAME}}={{kind}} with {{gpus}} GPUs"
        for kind, gpus in dict.fromkeys(pairs)
    ]
    found = [
        f"{{one['NodeManagerAddress']}} {{NAME}}={{one.get('Labels', {{}}).get(NAME)}} "
        f"with {{one['Resources'].get('GPU', 0):g}} GPUs"
        for one in ray.nodes()
        if one["Alive"]
    ]
    return (
        f"no nodes for the plan: asked for {{'; '.join(asked)}}; found "
        f"{{'; '.join(found)}}. Start nodes with ray start --labels={{NAME}}=TYPE, or "
        "set WAIT_S to wait longer for them"
    )


def main():
    ray.init(runtime_env={{"working_dir": "."}})
    group = placement_group(
        BUNDLES, strategy="STRICT_SPREAD", bundle_label_selector=LABELS
    )
    if not group.wait(float(os.environ.get("WAIT_S", "8"))):
        sys.exit(lacking())

    def on(bundle, function, gpus):
        place = PlacementGroupSchedulingStrategy(
            placement_group=group, placement_group_bundle_index=bundle
        )
        remote = ray.remote(function)
        return remote.options(num_cpus=0, num_gpus=gpus, scheduling_strategy=place)

    head = ray.get(on(0, address, 0).remote())
    port = os.environ.get("MASTER_PORT", "29500")
    program = os.environ.get("TRAIN", "./train.sh")
    ray.get(
        [
            on(i, train, BUNDLES[i]["GPU"]).remote(node, head, port, program)
            for i, node in enumerate(NODES)
        ]
    )


if __name__ == "__main__":
    main()
'''


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`launch.py` and `plan.json`."""
    held = [(share, node) for share in shares(data, plan) for node in share.nodes]
    launch = _LAUNCH.format(
        nodes=_rows([node for _, node in held]),
        bundles=_rows([{"GPU": share.gpus} for share, _ in held]),
        label=LABEL,
        labels=_rows([{LABEL: share.gpu} for share, _ in held]),
    )
    return {LAUNCH: launch, PLAN: plan_text(data, plan)}


def _rows(values: list[Any]) -> str:
    return "[\n" + "".join(f"    {value!r},\n" for value in values) + "]"
