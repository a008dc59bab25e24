"""`kubectl get nodes -o json` as the cluster of an instance.

GPUs are those that a node can allocate (`status.allocatable`, `nvidia.com/gpu` or
`amd.com/gpu`), their type and memory the labels of NVIDIA's feature discovery
(`nvidia.com/gpu.product`, `nvidia.com/gpu.memory`), or AMD's name of the product. A
node without the label has the GPUs of the machine by whose name a cloud rents it
(`node.kubernetes.io/instance-type`; `hetopt.catalogue.rented` has these), those that
Google's label names, or else those of the option `gpu`. The memory that pods can have
of a node (`memory`) is `host_gib`, for what GPUs offload. Nodes that are cordoned or
not ready, GPUs in parts (MIG), shared by pods or that a node has and does not hand out
(`status.capacity`), and accelerators of other makers are left out and told. One node,
or YAML, is read as well. Options are those of all importers of clusters.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from pydantic import Field

from ..catalogue import rented
from ..errors import InstanceError, quoted
from ..text.complaints import validated
from ..text.documents import Document, own_data
from .foreign import Foreign
from .importing import clusters
from .importing.clusters import Host, LeftOut

OPTIONS = clusters.OPTIONS
_COMMAND = "kubectl get nodes -o json"
_GPU, _MIG = "nvidia.com/gpu", "nvidia.com/mig-"
_MEMORY = "nvidia.com/gpu.memory"
GPUS = (_GPU, "amd.com/gpu")
_PRODUCTS = (
    *("nvidia.com/gpu.product", "amd.com/gpu.product-name"),
    "beta.amd.com/gpu.product-name",
)
_COUNT, _SHARING = "nvidia.com/gpu.count", "nvidia.com/gpu.sharing-strategy"
_MACHINE = "node.kubernetes.io/instance-type"
_HOST = "memory"  # of the node itself, of which pods can have so much
#: Of Google's label `cloud.google.com/gke-accelerator`.
_GOOGLE = "cloud.google.com/gke-accelerator"
OF_GOOGLE: Mapping[str, str] = own_data(__file__)
_SHARED = "nvidia.com/gpu.shared"
#: Resources of a node that are accelerators of other makers, by their names.
OTHERS = re.compile(
    r"(?!nvidia\.com/)[\w.-]+/(?:\w*gpu\w*|i915|xe|gaudi|tpu|neuron\w*|npu|"
    r"Ascend\w*|mlu\w*|dcu\w*|gcu\w*|xpu\w*|ppu\w*)",
    re.IGNORECASE,
)


_SHARED_BY_PODS = "its GPUs are shared by pods", "the device plugin without sharing"


class _Metadata(Foreign):
    name: str
    labels: dict[str, str] = Field(default={})


class _Spec(Foreign):
    unschedulable: bool = False


class _Condition(Foreign):
    type: str
    status: str


class _Status(Foreign):
    allocatable: dict[str, int | str] = Field(default={})
    capacity: dict[str, int | str] = Field(default={})
    conditions: tuple[_Condition, ...] = ()


class _Node(Foreign):
    kind: str = "Node"
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Nodes(Foreign):
    items: tuple[_Node, ...]


def _listed(path: Path) -> list[Host | LeftOut]:
    documents, gone = clusters.trees(path, is_one)
    found = [*gone, *(one for tree in documents for one in nodes(tree, str(path)))]
    if not any(isinstance(one, Host) for one in found):
        left_out = [one for one in found if isinstance(one, LeftOut)]
        raise InstanceError(_no_host(str(path), left_out))
    return found


def is_one(text: str, tree: Document | None) -> bool:
    """Tell whether a tree is a list of nodes, or one of them."""
    return tree is not None and tree.get("kind") in ("Node", "List", "NodeList")


listed = clusters.listing(_listed)
read = clusters.reader("kubectl", listed)


def _no_host(where: str, left_out: Sequence[LeftOut]) -> str:
    if left_out:
        return f"{where}: No usable GPU nodes found: {clusters.reasons(left_out)}"
    return (
        f"{where}: No GPU nodes found: no node has {_GPU} in status.allocatable. "
        f"Install NVIDIA's device plugin, then run: {_COMMAND}"
    )


def nodes(tree: Document, where: str) -> Iterator[Host | LeftOut]:
    """Yield what a list of nodes, or one node, has of GPUs."""
    listed = [tree] if tree.get("kind") == "Node" else tree.get("items")
    if not isinstance(listed, list):
        raise InstanceError(
            f"{where}: items: found no list, expected one of nodes. Run: {_COMMAND}"
        )
    for at, node in enumerate(validated(_Nodes, {"items": listed}, where).items):
        place = f"{where}: items[{at}]"
        if node.kind != "Node":
            raise InstanceError(
                f"{place}.kind: found {quoted(node.kind)}, expected Node. "
                f"Run: {_COMMAND}"
            )
        yield from _gpus(node, place)


def _gpus(node: _Node, place: str) -> Iterator[Host | LeftOut]:
    name, labels = node.metadata.name, node.metadata.labels
    allocatable = node.status.allocatable
    gpu = next((one for one in GPUS if _number(allocatable, one, place)), _GPU)
    count = _number(allocatable, gpu, place)
    product = _product(labels)
    for word in allocatable:
        if word.startswith(_MIG) and _number(allocatable, word, place):
            yield LeftOut(f"{word.removeprefix(_MIG)} of {name}", *_whole(name))
        elif word == _SHARED and _number(allocatable, word, place):
            yield LeftOut(f"{word} of {name}", *_SHARED_BY_PODS)
        elif (
            word != gpu and OTHERS.fullmatch(word) and _number(allocatable, word, place)
        ):
            yield LeftOut(f"{word} of {name}", "not read", "--from hostfile")
    if not count:
        if (idle := _number(node.status.capacity, gpu, place)) > 0:
            yield _not_allocatable(name, idle, "")
        return
    if why := _why_not(node, product or ""):
        yield LeftOut(name, *why)
        return
    memory = _number(labels, _MEMORY, place) or None
    machine = rented().get(labels.get(_MACHINE, "").lower())
    card = card_of(labels)
    gbits = machine.gbits_per_s if machine else None
    yield Host(
        name,
        card,
        count,
        place,
        memory,
        product=product,
        network_gbytes_per_s=None if gbits is None else gbits / 8,
        host_mib=_mib(allocatable, place),
    )
    there = _number(labels, _COUNT, place), _number(node.status.capacity, gpu, place)
    if (missing := max(there) - count) > 0:
        yield _not_allocatable(name, missing, "more ")


def _not_allocatable(name: str, gpus: int, more: str) -> LeftOut:
    """Return what is told of GPUs that a node has and hands out to no pod."""
    what = f"{gpus} {more}GPU{'s' * (gpus > 1)} of {name}"
    return LeftOut(what, "not allocatable", f"kubectl describe node {name}")


def card_of(labels: Mapping[str, object]) -> str | None:
    """Return the card that labels of a node tell, by NVIDIA, or by its machine."""
    machine = rented().get(str(labels.get(_MACHINE, "")).lower())
    product = _product(labels) or (machine.card if machine else None)
    return product or OF_GOOGLE.get(str(labels.get(_GOOGLE, "")))


def _product(labels: Mapping[str, object]) -> str | None:
    return next((str(labels[one]) for one in _PRODUCTS if labels.get(one)), None)


def _whole(name: str) -> tuple[str, str]:
    """Return why parts of GPUs are left out, and what makes them whole."""
    return (
        "parts of GPUs (MIG)",
        f"kubectl label node {name} nvidia.com/mig.config=all-disabled --overwrite",
    )


def _why_not(node: _Node, product: str) -> tuple[str, str] | None:
    """Return why a node with GPUs is left out, and what changes it; None: it is not."""
    name = node.metadata.name
    ready = [one.status for one in node.status.conditions if one.type == "Ready"]
    if node.spec.unschedulable:
        return "cordoned", f"kubectl uncordon {name}"
    if ready and ready != ["True"]:
        return "not ready", f"kubectl describe node {name}"
    if "-MIG-" in product:
        return _whole(name)
    shared = node.metadata.labels.get(_SHARING, "none") != "none"
    if shared or product.endswith("-SHARED"):
        return _SHARED_BY_PODS
    return None


#: Bytes of the suffixes of quantities.
_SUFFIXES: Mapping[str, int | Fraction] = {
    "": 1,
    "m": Fraction(1, 1000),
    **{letter + "i": 1024**n for n, letter in enumerate("KMGTPE", 1)},
    **{letter: 1000**n for n, letter in enumerate("kMGTPE", 1)},
}


def _mib(values: Mapping[str, int | str], place: str) -> int | None:
    """Return the memory that pods can have of a node; None where it is not told."""
    if (told := values.get(_HOST)) is None:
        return None
    found = re.fullmatch(r"([0-9]{1,18})([KMGTPE]i|[mkMGTPE]|)", str(told))
    if found is None:
        raise InstanceError(
            f"{place}: {_HOST}: found {quoted(str(told))}, expected a quantity such as "
            "1056256512Ki; correct it"
        )
    return int(found[1]) * _SUFFIXES[found[2]] // 2**20


def _number(values: Mapping[str, int | str], field: str, place: str) -> int:
    text = str(values.get(field, 0))
    if not re.fullmatch(r"[0-9]{1,7}", text):
        raise InstanceError(
            f"{place}: {field}: found {quoted(text)}, expected a whole number; "
            "correct it"
        )
    return int(text)
