"""Ray and SkyPilot name their machines in YAML: read them as a cluster.

    Ray       cluster YAML (`available_node_types`) and KubeRay's RayCluster
    SkyPilot  a task: `resources.accelerators: A100-80GB:8`, `num_nodes`

A machine is told by its cards, or by the name by which a cloud rents it
(`p4d.24xlarge`; `hetopt.catalogue.rented` has these). SkyPilot's names of cards are its
own: its `A100` has 40 GB, its `H100` is the SXM card. Where a number of machines may
grow, the least is taken, or where that is none the most, and told. What leaves open
which card is meant is refused. Options are those of all importers of clusters.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from ..catalogue import find_gpu, near, rented, skypilot_gpus
from ..errors import InstanceError, quoted
from . import kubectl
from .documents import Document, Values
from .importing import clusters
from .importing.clusters import Host, LeftOut

OPTIONS = clusters.OPTIONS
_MOST_NODES = 20_000
_KUBERAY = ("RayCluster", "RayJob", "RayService")
_MACHINE = "node.kubernetes.io/instance-type"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def listed(paths: Sequence[Path]) -> tuple[list[Host], list[LeftOut]]:
    """Return the machines of all files, and what of them is left out."""
    hosts: list[Host] = []
    left_out: list[LeftOut] = []
    for path in paths:
        found, others = clusters.trees(path, is_one)
        left_out += others
        place = str(path)
        for one in chain.from_iterable(_machines(x, place, path.stem) for x in found):
            if isinstance(one, Host):
                hosts.append(one)
            else:
                left_out.append(one)
        if not hosts and not left_out:
            raise InstanceError(
                f"{place}: found no machine with GPUs, expected at least one: hetopt "
                "does not know its machine types; say how many GPUs a machine has "
                "(resources: {GPU: 8}), and which card"
            )
    return hosts, left_out


read = clusters.reader("launcher", listed)


def is_one(text: str, tree: Document | None) -> bool:
    """Tell whether a tree is of one of these tools."""
    if tree is None:
        return False
    resources = tree.get("resources")
    keys = {"accelerators", "any_of", "ordered", "instance_type"}
    asks = isinstance(resources, dict) and not keys.isdisjoint(resources)
    return asks or "available_node_types" in tree or tree.get("kind") in _KUBERAY


def _machines(tree: Document, place: str, stem: str) -> Iterator[Host | LeftOut]:
    if "available_node_types" in tree:
        yield from _of_ray(tree, place)
    elif tree.get("kind") in _KUBERAY:
        yield from _of_kuberay(tree, place)
    elif is_one("", tree):
        name = str(tree.get("name") or stem)
        resources = _tree(tree["resources"], f"{place}: resources")
        yield from _of_skypilot(tree, resources, name, place)
    else:
        raise InstanceError(
            f"{place}: found neither available_node_types (Ray) nor resources with "
            "accelerators (SkyPilot), expected one of them"
        )


# --- Ray ---------------------------------------------------------------------------


def _of_ray(tree: Values, place: str) -> Iterator[Host | LeftOut]:
    types = _tree(tree["available_node_types"], f"{place}: available_node_types")
    head = tree.get("head_node_type")
    for name, fields in types.items():
        at = f"{place}: available_node_types.{name}"
        fields = _tree(fields, at)
        asked = _tree(fields.get("resources") or {}, f"{at}.resources")
        config = _tree(fields.get("node_config") or {}, f"{at}.node_config")
        rents = [
            config[key] for key in ("InstanceType", "machineType") if key in config
        ]
        azure = config.get("azure_arm_parameters")
        if isinstance(azure, dict) and "vmSize" in azure:
            rents.append(azure["vmSize"])
        rents = [str(one).rpartition("/")[2] for one in rents]
        card, gpus = _rented_card(rents[0] if rents else "")
        if "GPU" in asked:
            gpus = _count(asked["GPU"], f"{at}.resources.GPU")
        for key in asked:
            if str(key).startswith("accelerator_type:"):
                card = str(key).partition(":")[2]
        if not gpus:
            if rents and card is None and name != head:
                what = f"{rents[0]} is not a machine type that hetopt knows"
                yield LeftOut(str(name), what, "add resources: {GPU: N}")
            continue
        least = 1 if name == head else _count(fields.get("min_workers", 0), at)
        most, kind = fields.get("max_workers"), rents[0] if rents else ""
        yield from _hosts_called(str(name), card, gpus, least, most, at, kind)


def _of_kuberay(tree: Values, place: str) -> Iterator[Host | LeftOut]:
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
            how = name, kubectl.card_of(labels), gpus, pods, None, at, kind
            yield from _hosts_called(*how)


def _selected(pod: Values, at: str) -> Document:
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


# --- SkyPilot ----------------------------------------------------------------------


def _of_skypilot(
    tree: Values, resources: Values, name: str, place: str
) -> Iterator[Host | LeftOut]:
    if more := [one for one in ("any_of", "ordered") if one in resources]:
        raise InstanceError(
            f"{place}: resources.{more[0]}: found several types of machines, expected "
            "one; keep the one that the job gets"
        )
    many = _count(tree.get("num_nodes", 1), f"{place}: num_nodes")
    told, kind = resources.get("accelerators"), str(resources.get("instance_type", ""))
    at = f"{place}: resources.accelerators"
    if told is None:
        card, gpus = _rented_card(kind)
        if not gpus:
            raise InstanceError(
                f"{place}: resources.instance_type: found {quoted(kind)}, expected a "
                "machine type that hetopt knows; add accelerators: NAME:COUNT"
            )
        yield from _hosts_called(name, card, gpus, many, None, at, kind)
        return
    if isinstance(told, list) and len(told) == 1:
        told = told[0]
    if isinstance(told, dict) and len(told) == 1:
        ((card, gpus),) = told.items()
        told = f"{card}:{gpus}"
    if not isinstance(told, str):
        raise InstanceError(
            f"{at}: found several types of cards, expected one; keep the one that the "
            "job gets"
        )
    card, _, number = told.partition(":")
    gpus = _count(number or 1, at)
    meant = skypilot_gpus().get(card)
    for one in _hosts_called(name, card, gpus, many, None, at, kind):
        is_told = kind.lower() in rented()
        if meant is not None and isinstance(one, Host) and not is_told:
            yield one._replace(usual=meant.name)
        else:
            yield one


# --- all ---------------------------------------------------------------------------


def _hosts_called(
    name: str,
    card: str | None,
    gpus: int,
    least: int,
    most: object,
    place: str,
    kind: str = "",
) -> Iterator[Host | LeftOut]:
    """Yield machines that are alike, numbered where there are several.

    `kind` is the name by which a cloud rents one.
    """
    found = rented().get(kind.lower())
    card = _of_machine(card, gpus, kind, place)
    gbits = None if found is None else found.gbits_per_s
    rate = None if gbits is None else gbits / 8
    many = least or _count(most or 0, place)
    if many > _MOST_NODES:
        raise InstanceError(
            f"{place}: found {many} machines, expected at most {_MOST_NODES}"
        )
    for number in range(many):
        whole = name if many == 1 else f"{name}-{number}"
        whole = re.sub(r"[^\w.-]", "-", whole)
        yield Host(whole, card, gpus, place, network_gbytes_per_s=rate)
    if not many:
        yield LeftOut(name, "no machine of it starts", "min_workers: N")
    elif most is not None and least and _count(most, place) > least:
        extra = _count(most, place) - least
        what = f"{extra} more of {name}"
        yield LeftOut(what, "they start on demand", "min_workers: N")


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


def _rented_card(name: str) -> tuple[str | None, int]:
    """Return the card of a machine by the name by which it is rented, and how many."""
    found = rented().get(name.lower())
    return (None, 0) if found is None else (found.card, found.gpus)


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
