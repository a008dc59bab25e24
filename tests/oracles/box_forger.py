"""Certificates of boxes as a forger would write them, of a time that a plan has."""

import json
from random import Random
from typing import Any

from pydantic import ValidationError

from hetopt.exact.pipelines.bound import PipelineBound
from hetopt.exact.pipelines.boxes import Box
from hetopt.exact.pipelines.schedule import Counting, Schedule
from hetopt.problems.training_plan.settings import variants
from hetopt.schema import Instance
from hetopt.solving.certificates import BoxCertificate, joined

_SPLITS = ("sync", "count", "replicas", "size", "slowest", "host")
_FACTORS = (0, 1, 2, 3, 7, 50, 1000, 10**6, 10**12)
_SHARES = (0.5, 0.9, 0.98, 0.999, 1.001, 1.02, 1.1, 2.0)


def honest(
    instance: Instance,
    time_us: int,
    most_us: int,
    steps: int,
    *,
    whole: bool = False,
    hosts: bool = False,
) -> BoxCertificate | None:
    """Return a certificate that no plan takes the time.

    None if that takes more than so many steps for a choice of settings. Pipelines may
    be looked at as a `whole` wherever prices do not do, and boxes be divided by all
    numbers of `hosts` before.
    """
    each = []
    plan = Schedule(counting=Counting(near=1e9), coarse=1.0) if whole else Schedule()
    for one in variants(instance) if time_us > 0 else ():
        bound = PipelineBound(one, most_us, 1, schedule=plan, whole=whole)
        if hosts:
            bound.boxes = [x for box in bound.first for x in _by_hosts(bound, box)]
        refutation = bound.refute(time_us)
        for _ in range(steps + len(bound.boxes)):
            if not refutation.step():
                break
        if not refutation.proved:
            return None
        each.append(refutation.certificate())
    return joined(each) if each else None


def _by_hosts(bound: PipelineBound, box: Box) -> list[Box]:
    """Return the parts of a box by all numbers of hosts, of one pipeline and more."""
    if box.count_low == 1 < box.count_high:
        box.split = bound.division.by_count(box)
    else:
        box.split = bound.division._by_host(box)
    if box.split is None:
        return [box]
    parts = box.split.low, box.split.high
    return [x for part in parts for x in _by_hosts(bound, part)]


def forged(rng: Random, honest: BoxCertificate, time_us: int) -> BoxCertificate | None:
    """Return an honest certificate with changes, of a longer time.

    None where the changes make no certificate.
    """
    tree = honest.model_dump(mode="json", exclude_none=True)
    for each in (tree, *tree.get("further", ())):
        each["time_us"] = time_us
        for _ in range(rng.choice([0, 1, 1, 2, 4])):
            _change(rng, each)
    return read(tree)


def read(tree: dict[str, Any]) -> BoxCertificate | None:
    """Return a certificate as a file has it; None if it is none."""
    try:
        return BoxCertificate.model_validate_json(json.dumps(tree))
    except ValidationError:
        return None


def boxes(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a box and all within it."""
    found = [tree]
    for side in ("low", "high"):
        if side in tree:
            found += boxes(tree[side])
    return found


def _change(rng: Random, tree: dict[str, Any]) -> None:
    box = rng.choice(boxes(tree["tree"]))
    leaves = [each for each in boxes(tree["tree"]) if "prices" in each]
    how = rng.randrange(10)
    if how == 0:
        tree["scale"] = max(1, int(tree["scale"] * rng.choice(_SHARES)))
    elif how == 1:
        tree["scale"] = rng.choice([1, 2, 2**21, 2**40])
    elif how == 2 and "at" in box:
        box["at"] = max(
            0, int(box["at"] * rng.choice(_SHARES)) + rng.choice([-1, 0, 1])
        )
    elif how == 3 and "at" in box:
        box[rng.choice(["low", "high"])] = json.loads(
            json.dumps(rng.choice(boxes(tree["tree"])))
        )
    elif how == 4 and "split" in box:
        box["split"] = rng.choice(_SPLITS)
        box["kind"] = rng.randrange(3) if box["split"] == "host" else None
    elif how == 5 and leaves:
        for leaf in leaves if rng.random() < 0.5 else [rng.choice(leaves)]:
            if leaf.pop("whole", None) is None:
                leaf["whole"] = True
    elif leaves:
        some = leaves if how > 7 else [rng.choice(leaves)]
        for leaf in some:
            _reprice(rng, leaf)


def _reprice(rng: Random, leaf: dict[str, Any]) -> None:
    prices = leaf["prices"]
    if rng.random() < 0.5:
        share = rng.choice(_SHARES)
        leaf["prices"] = [min(2**60, int(y * share)) for y in prices]
        return
    for _ in range(rng.choice([1, 1, 2])):
        i = rng.randrange(len(prices))
        more = rng.choice(_FACTORS) * rng.randint(1, 1000)
        prices[i] = min(
            2**60, rng.choice([0, prices[i] + more, max(0, prices[i] - more)])
        )


def random_tree(
    rng: Random, instance: Instance, time_us: int, depth: int = 3
) -> BoxCertificate | None:
    """Return any divisions, with any prices that are worth about the batch or less."""
    table = instance.planned_cluster
    names: dict[object, str] = {}
    for node in table.nodes:
        key = node.gpu, node.count, node.intra_gbytes_per_s
        names.setdefault(key, node.name)
    classes, scale = [*names.values()], rng.choice([1, 1000, 2**21])
    gpus = sum(node.count for node in table.nodes)
    each = instance.workload.global_batch * scale / gpus

    def box(left: int) -> dict[str, Any]:
        if left and rng.random() < 0.7:
            of = rng.choice(_SPLITS)
            at = rng.choice([0, 1, 2, 3, time_us // 2, time_us // 8, time_us])
            parts = {"low": box(left - 1), "high": box(left - 1)}
            if of == "host":
                of_kind = {"kind": rng.randrange(3), "at": rng.randrange(3)}
                return {"split": of, **of_kind, **parts}
            return {"split": of, "at": at, **parts}
        whole = rng.random() < 0.4
        worth = [0.3, 0.8, 0.99, 1.1, *((1.5, 3) if whole else ())]
        prices = [int(each * rng.choice(worth)) for _ in classes]
        more = [
            int(each * rng.choice([0, 0, 0.01, 0.5])) for _ in range(len(classes) + 3)
        ]
        some = {"whole": True} if whole else {}
        return {"prices": prices + more, **some}

    given = {"time_us": time_us, "scale": scale, "classes": classes}
    return read({**given, "tree": box(depth)})
