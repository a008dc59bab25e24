"""KubeRay's RayCluster, RayJob and RayService as a cluster, a node a pod with GPUs.

A group's card is told by the labels of nodes that its pods ask for: the product of the
GPU, or the type of the machine (`p4d.24xlarge`), by which a cloud rents it
(`hetopt.catalogue.rented`). What leaves open which card is meant is refused. Options
are those of all importers of clusters.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from ..catalogue import find_gpu, near, rented
from ..errors import InstanceError, quoted
from ..text.documents import Document, Fields
from . import kubectl
from .importing import clusters
from .importing.clusters import Host, LeftOut

OPTIONS = clusters.OPTIONS
_MOST_NODES = 20_000
_KINDS = ("RayCluster", "RayJob", "RayService")
_MACHINE = "node.kubernetes.io/instance-type"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _listed(path: Path) -> list[Host | LeftOut]:
    trees, others = clusters.trees(path, is_one)
    found = [one for tree in trees for one in _machines(tree, str(path))]
    if not found and not others:
        raise InstanceError(
            f"{path}: found no group with GPUs, expected nvidia.com/gpu among the "
            "limits of a container; add it"
        )
    return [*others, *found]


listed = clusters.listing(_listed)
read = clusters.reader("kuberay", listed)


def is_one(text: str, tree: Document | None) -> bool:
    """Tell whether a tree is one of KubeRay's."""
    return tree is not None and tree.get("kind") in _KINDS


def _machines(tree: Fields, place: str) -> Iterator[Host | LeftOut]:
    spec = _tree(tree.get("spec") or {}, f"{place}: spec")
    inner = spec.get("rayClusterSpec") or spec.get("rayClusterConfig")
    spec = _tree(inner or spec, f"{place}: spec")
    groups = [("head", 1, spec.get("headGroupSpec"))]
    for one in _list(spec.get("workerGroupSpecs"), f"{place}: workerGroupSpecs"):
        one = _tree(one, f"{place}: workerGroupSpecs")
        groups.append((str(one.get("groupName")), one.get("replicas", 1), one))
    for name, many, group in groups:
        at = f"{place}: {name}"
        group = _tree(group or {}, at)
        pod = _tree(group.get("template") or {}, at)
        pod = _tree(pod.get("spec") or {}, at)
        gpus = 0
        for one in _list(pod.get("containers"), at):
            asked = _tree(_tree(one, at).get("resources") or {}, at)
            limits = _tree(asked.get("requests") or {}, at)
            limits = limits | _tree(asked.get("limits") or {}, at)
            gpus += sum(_count(limits.get(x, 0), f"{at}.{x}") for x in kubectl.GPUS)
            for word in filter(kubectl.OTHERS.fullmatch, limits):
                if word not in kubectl.GPUS:
                    yield LeftOut(f"{word} of {name}", "not read", "--from hostfile")
        if gpus:
            labels = _selected(pod, at)
            kind = str(labels.get(_MACHINE, ""))
            pods = _count(many, at) * _count(group.get("numOfHosts", 1), at)
            yield from _alike(name, kubectl.card_of(labels), gpus, pods, at, kind)


def _selected(pod: Fields, at: str) -> Document:
    """Return the labels of nodes that a pod asks for, each with the one value."""
    found = dict(_tree(pod.get("nodeSelector") or {}, at))
    affinity = _tree(_tree(pod.get("affinity") or {}, at).get("nodeAffinity") or {}, at)
    terms = _tree(affinity.get(_REQUIRED) or {}, at).get("nodeSelectorTerms")
    for term in _list(terms, at):
        for one in _list(_tree(term, at).get("matchExpressions"), at):
            one = _tree(one, at)
            values = _list(one.get("values"), at)
            if one.get("operator") == "In" and len(values) == 1:
                found.setdefault(str(one.get("key")), values[0])
    return found


def _alike(
    name: str, card: str | None, gpus: int, many: int, place: str, kind: str
) -> Iterator[Host | LeftOut]:
    """Yield machines that are alike, numbered where there are several.

    `kind` is the name by which a cloud rents one.
    """
    found = rented().get(kind.lower())
    card = _of_machine(card, gpus, kind, place)
    gbits = None if found is None else found.gbits_per_s
    rate = None if gbits is None else gbits / 8
    if many > _MOST_NODES:
        raise InstanceError(
            f"{place}: found {many} machines, expected at most {_MOST_NODES}"
        )
    for number in range(many):
        whole = name if many == 1 else f"{name}-{number}"
        whole = re.sub(r"[^\w.-]", "-", whole)
        yield Host(whole, card, gpus, place, network_gbytes_per_s=rate)
    if not many:
        yield LeftOut(name, "no machine of it starts", "replicas: N")


def _of_machine(card: str | None, gpus: int, kind: str, place: str) -> str | None:
    """Return the card of a machine that is rented, as the file names it beside that.

    Raises `InstanceError` where the machine has other cards, or fewer.
    """
    found = rented().get(kind.lower())
    if found is None or card is None:
        return card
    sheet = find_gpu(card)
    is_its = found.card == sheet.name if sheet else found.card in near(card)
    if gpus > found.gpus or not is_its:
        raise InstanceError(
            f"{place}: found {gpus} x {quoted(card)} of the machine {quoted(kind)}, "
            f"expected {found.gpus} x {found.card}, which it has; correct one of them"
        )
    return found.card


def _count(value: object, place: str) -> int:
    text = str(value)
    if not re.fullmatch(r"[0-9]{1,5}(\.0)?", text) or isinstance(value, bool):
        raise InstanceError(
            f"{place}: found {quoted(text)}, expected a whole number; correct it"
        )
    return int(float(text))


def _tree(value: object, place: str) -> Document:
    if not isinstance(value, dict):
        raise InstanceError(
            f"{place}: found {quoted(str(value))}, expected named fields; correct it"
        )
    return value


def _list(value: object, place: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InstanceError(f"{place}: found no list, expected one; correct it")
    return value
