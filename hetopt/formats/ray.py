"""Ray: a placement group with a bundle for each node, by the label of its GPU type.

`launch.py` makes the group (`bundles`, `bundle_label_selector`, every bundle on a node
of its own) and starts the training program in each bundle. Nodes are started with
`ray start --labels="gpu-type=TYPE"`, TYPE being the instance's name: Ray's own label
`ray.io/accelerator-type` does not tell cards of one name and different memory apart.

The program is hetopt's executor, `train.sh`, with the words in ARGS of who starts
`launch.py`; the option `train` names another one.

Ray waits for ever for bundles that no node can hold: `launch.py` waits for WAIT_S
seconds and then says which labels and GPUs it asked for and which nodes there are.
"""

from .contract import Held
from .exporting import allocation, programs
from .exporting.allocation import Machines

HELD = Held("Ray", "2.49", ("2.60.0",), "ray")

refusals = allocation.refusals
OPTIONS = allocation.options({})
LAUNCH, LABEL = "launch.py", "gpu-type"
_LAUNCH = '''\
"""Start TRAIN on every node of a plan of hetopt: `python launch.py`, in this folder.

TRAIN is a program in this folder; it gets plan.json and the name of its node, and
MASTER_ADDR, MASTER_PORT and ARGS. By default it is train.sh, which runs `hetopt run`
with the words in ARGS. Ray takes the folder to the nodes. Where nodes are still to be
started, WAIT_S is how many seconds to wait for them, else 8.
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
PROGRAM = {program!r}
OWN = "./{own}"  # looks at ARGS


def address():
    return ray.util.get_node_ip_address()


def train(node, told, program):
    subprocess.run([program, PLAN, node], env={{**os.environ, **told}}, check=True)


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
    program = os.environ.get("TRAIN", PROGRAM)
    if program is None:
        sys.exit(
            "TRAIN: name your program that trains by plan.json: hetopt run cannot, as "
            "hetopt export --explain says of torchrun"
        )
    if program == OWN and (code := subprocess.run(["bash", OWN]).returncode):
        sys.exit(code)
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

    told = {{
        "MASTER_ADDR": ray.get(on(0, address, 0).remote()),
        "MASTER_PORT": os.environ.get("MASTER_PORT", "29500"),
        "ARGS": os.environ.get("ARGS", ""),
    }}
    ray.get(
        [
            on(i, train, BUNDLES[i]["GPU"]).remote(node, told, program)
            for i, node in enumerate(NODES)
        ]
    )


if __name__ == "__main__":
    main()
'''


def _ask(made: Machines) -> dict[str, str]:
    held = [
        (share, node)
        for share in allocation.shares(made.data, made.plan)
        for node in share.nodes
    ]
    launch = _LAUNCH.format(
        nodes=_rows([node for _, node in held]),
        bundles=_rows([{"GPU": share.gpus} for share, _ in held]),
        label=LABEL,
        labels=_rows([{LABEL: share.gpu} for share, _ in held]),
        program=made.program.path,
        own=programs.TRAIN,
    )
    return {LAUNCH: launch}


export = allocation.exporter(_ask, {})


def _rows(values: list[object]) -> str:
    return "[\n" + "".join(f"    {value!r},\n" for value in values) + "]"
