"""SkyPilot: one YAML for each GPU type, and a script that launches them in order.

Machines that a plan of offers rents (`hetopt provision`) are asked for as offered: of
`8xA100@aws/us-east-1-spot` all GPUs, the cloud, the region, and spot prices.

A cluster of SkyPilot is of one accelerator, by SkyPilot's name of the card (`sky
show-gpus`); of a type that is no card of the catalogue, by the instance's.
`launch.sh` launches the first cluster, asks for its address and gives it to the others
as HEAD: the clusters must reach one another. The nodes of the plan are given to a
cluster's nodes by `SKYPILOT_NODE_RANK`. The program is hetopt's executor, which is to
be installed there (`setup` of a task), or that of the option `train`.
"""

import re

from ...catalogue import find_gpu
from ...plans import TrainingPlan
from ...schema import Cluster, GpuType, Instance
from ...text.documents import Document
from ...text.parsing import yaml_text
from ..contract import Held
from ..exporting import allocation
from ..exporting.allocation import Machines, Share, shares

HELD = Held("SkyPilot", "0.9", ("0.14.1",), "skypilot")

OPTIONS = allocation.options({})
LAUNCH = "launch.sh"
#: The end of the name of an offer at spot prices (`prices`).
SPOT = "spot"
_OFFER = re.compile(r"\d+x.|.+@")
_RUN = """\
names=($NODES)
export MASTER_ADDR="${HEAD:-$(echo "$SKYPILOT_NODE_IPS" | head -n 1)}"
export MASTER_PORT="${MASTER_PORT:-29500}"
"$TRAIN" plan.json "${names[$SKYPILOT_NODE_RANK]}"
"""
_HEAD = """\
#!/usr/bin/env bash
# Launch a cluster for each GPU type, named CLUSTER-TYPE-GPUS. TRAIN, a program in this
# folder, is started on every node, by default train.sh, which runs hetopt run with the
# words in ARGS; further arguments are passed to `sky launch`.
set -euo pipefail
cd "$(dirname "$0")"
cluster="${CLUSTER:-hetopt}"
"""


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """GPU types with names that no scheduler takes, or that SkyPilot cannot ask for."""
    found = allocation.refusals(data, plan)
    for gpu in sorted({share.gpu for share in shares(data, plan)}):
        card = find_gpu(_card(gpu, data.planned_cluster.gpus[gpu]))
        if card is not None and card.beyond_skypilot is not None:
            found.append(f"GPU type {gpu!r} is beyond SkyPilot: {card.beyond_skypilot}")
    return found


def _ask(made: Machines) -> dict[str, str]:
    found, cluster = shares(made.data, made.plan), made.data.planned_cluster
    files = {f"{share.label}.yaml": _task(share, cluster) for share in found}
    lines = []
    for number, share in enumerate(found):
        head = '--env HEAD="$head" ' if number else ""
        lines.append(
            f'sky launch --yes --detach-run -c "$cluster-{share.label}" '
            f'--env TRAIN="$train" --env ARGS="${{ARGS:-}}" {head}'
            f'{share.label}.yaml "$@"'
        )
        if not number:
            lines.append(f'head="$(sky status --ip "$cluster-{share.label}")"')
    launch = _HEAD + made.program.chosen() + "\n".join(lines) + "\n"
    return {**files, LAUNCH: launch}


export = allocation.exporter(_ask, {})


def _task(share: Share, cluster: Cluster) -> str:
    kind = cluster.gpus[share.gpu]
    name = _card(share.gpu, kind)
    card, rented = find_gpu(name), _offer(kind) is not None  # whole
    gpus = cluster.node[share.nodes[0]].count if rented else share.gpus
    task = {
        "name": f"hetopt-{share.label}",
        "num_nodes": len(share.nodes),
        "workdir": ".",
        "resources": {
            "accelerators": {card.accelerator_name if card else name: gpus},
            **_place(kind),
        },
        "envs": {"HEAD": "", "NODES": " ".join(share.nodes), "TRAIN": "", "ARGS": ""},
        "run": _RUN,
    }
    return yaml_text(task, width=88)


def _card(gpu: str, kind: GpuType) -> str:
    """Return the card of a type: of one that is rented its own name has its place."""
    return kind.card or gpu if _offer(kind) else gpu


def _offer(kind: GpuType) -> str | None:
    """Return the offer that a type is rented by, `8xA100@aws/us-east-1-spot`."""
    return next((name for name in kind.aliases if _OFFER.match(name)), None)


def _place(kind: GpuType) -> Document:
    place = (_offer(kind) or "").partition("@")[2]
    spot = place == SPOT or place.endswith(f"-{SPOT}")
    if spot:
        place = place[: -len(SPOT)].rstrip("-")
    cloud, _, region = place.partition("/")
    asked = {"cloud": cloud, "region": region, "use_spot": spot}
    return {name: value for name, value in asked.items() if value}
