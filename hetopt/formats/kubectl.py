"""`kubectl get nodes -o json` as the cluster of an instance.

GPUs are those that a node can allocate (`status.allocatable`, `nvidia.com/gpu`), their
type and memory the labels of NVIDIA's feature discovery (`nvidia.com/gpu.product`,
`nvidia.com/gpu.memory`); a node without the label has GPUs of the option `gpu`. Nodes
that are cordoned or not ready, GPUs in parts (MIG) or shared by pods, and GPUs of other
makers are left out and told. One node, or YAML, is read as well. Options are those of
all importers of clusters.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from ..errors import InstanceError, quoted
from ..text.complaints import validated
from ..text.parsing import read_tree
from .documents import Document
from .foreign import Foreign
from .importing import clusters
from .importing.clusters import Host, LeftOut

OPTIONS = clusters.OPTIONS
_COMMAND = "kubectl get nodes -o json"
_GPU, _MIG = "nvidia.com/gpu", "nvidia.com/mig-"
_PRODUCT, _MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
_COUNT, _SHARING = "nvidia.com/gpu.count", "nvidia.com/gpu.sharing-strategy"
_OTHERS = ("amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi")


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
    conditions: tuple[_Condition, ...] = ()


class _Node(Foreign):
    kind: str = "Node"
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Nodes(Foreign):
    items: tuple[_Node, ...]


def listed(paths: Sequence[Path]) -> tuple[list[Host], list[LeftOut]]:
    """The nodes of all files with GPUs, and those that are left out."""
    hosts: list[Host] = []
    left_out: list[LeftOut] = []
    for path in paths:
        found = [*nodes(read_tree(path), str(path))]
        there = [one for one in found if isinstance(one, Host)]
        gone = [one for one in found if isinstance(one, LeftOut)]
        if not there:
            raise InstanceError(_no_host(str(path), gone))
        hosts += there
        left_out += gone
    return hosts, left_out


def is_one(text: str, tree: Document | None) -> bool:
    """Tell whether a tree is a list of nodes, or one of them."""
    return tree is not None and tree.get("kind") in ("Node", "List", "NodeList")


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
    count = _number(allocatable, _GPU, place)
    product = labels.get(_PRODUCT)
    for word in allocatable:
        if word.startswith(_MIG) and _number(allocatable, word, place):
            yield LeftOut(f"{word.removeprefix(_MIG)} of {name}", *_whole(name))
        elif word in _OTHERS and _number(allocatable, word, place):
            yield LeftOut(f"{word} of {name}", "not NVIDIA's", "--from hostfile")
    if not count:
        return
    if why := _why_not(node, product or ""):
        yield LeftOut(name, *why)
        return
    memory = _number(labels, _MEMORY, place) or None
    yield Host(name, product, count, place, memory, product=product)
    if (missing := _number(labels, _COUNT, place) - count) > 0:
        what = f"{missing} more GPU{'s' * (missing > 1)} of {name}"
        yield LeftOut(what, "not allocatable", f"kubectl describe node {name}")


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
        return "its GPUs are shared by pods", "the device plugin without sharing"
    return None


def _number(values: Mapping[str, int | str], field: str, place: str) -> int:
    """Return a whole number, 0 where there is none."""
    text = str(values.get(field, 0))
    if not re.fullmatch(r"[0-9]{1,7}", text):
        raise InstanceError(
            f"{place}: {field}: found {quoted(text)}, expected a whole number; "
            "correct it"
        )
    return int(text)
