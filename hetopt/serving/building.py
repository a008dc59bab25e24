"""Instances: assembled from the page's form, read from a file, or changed.

The form goes the way of `hetopt assemble`, over a list of hosts and the model's shape
or configuration, so that what is assumed is the same, and is told with the same rows.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

from pydantic import Field

from .. import api, files
from ..api.calling import Place
from ..api.starts import NOTHING, Known, known_of
from ..errors import HetoptError, InstanceError
from ..formats.assembling import Listed, assembly
from ..formats.importing import clusters
from ..formats.importing.assumptions import Assumption
from ..plans import TrainingPlan
from ..schema import (
    LONGEST_NAME,
    Count,
    GbytesPerS,
    Instance,
    LatencyUs,
    Length,
    MemoryGib,
    Name,
    Record,
)
from ..schema.record import PeakTflops
from ..text.complaints import validated
from ..text.documents import Document
from ..text.parsing import read_tree
from .refusals import Refusal, told

_FORM = "the form"
_HOST = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_MODEL = r"^[A-Za-z0-9][A-Za-z0-9._/ -]*$"  # as of a repository; it names a folder
_LONGEST_STEM = 100  # bytes of an uploaded file's name that are kept


class Posed(NamedTuple):
    """An instance, what was assumed in it, the plan of its file, and others known."""

    instance: Instance
    assumed: tuple[Assumption, ...] = ()
    plan: TrainingPlan | None = None
    form: "Form | None" = None
    known: Known = NOTHING


class Group(Record):
    """Equal nodes: hosts `name-1`, `name-2` and so on."""

    name: Annotated[str, Field(pattern=_HOST, max_length=60)] = Field(
        description="letters, digits, dots and dashes, as of a host"
    )
    card: Name
    gpus: Annotated[int, Field(ge=1, le=72)]
    nodes: Annotated[int, Field(ge=1, le=256)]
    link_gbytes_per_s: GbytesPerS | None = None
    network_gbytes_per_s: GbytesPerS | None = None


class Model(Record):
    """A model of the catalogue, or of that name with the text of its config.json."""

    name: Annotated[
        str,
        Field(
            pattern=_MODEL,
            max_length=100,
            description="org/model-7b, as of a repository",
        ),
    ]
    config: Annotated[str, Field(max_length=2**20)] | None = None


class Form(Record):
    """The form that the page fills in; the fields are those of `hetopt assemble`."""

    model: Model
    groups: Annotated[tuple[Group, ...], Field(min_length=1, max_length=64)]
    network_gbytes_per_s: GbytesPerS
    global_batch: Length
    sequence_length: Length
    micro_batch_sizes: Annotated[tuple[Count, ...], Field(min_length=1)] = (1,)
    options: Annotated[tuple[str, ...], Field(max_length=50)] = ()


class ChangedNode(Record):
    """A node as it is to be; a new one has the links of another of its type."""

    name: Name
    gpu: Name
    count: Annotated[int, Field(ge=1, le=4096)]


class ChangedCard(Record):
    """Figures of a card as they are to be."""

    memory_gib: MemoryGib | None = None
    peak_tflops: PeakTflops | None = None


class Changes(Record):
    """The changes say what of an instance is to be other than it is."""

    nodes: Annotated[tuple[ChangedNode, ...], Field(min_length=1)] | None = None
    cards: dict[Name, ChangedCard] = Field({}, max_length=100)
    network_gbytes_per_s: GbytesPerS | None = None
    latency_us: LatencyUs | None = None
    global_batch: Length | None = None
    sequence_length: Length | None = None


class Named(Record):
    """An instance of the library."""

    name: Name


class File(Record):
    """A file that was uploaded: an instance, or a plan with its instance."""

    name: Name
    text: str


# --- from the form ---------------------------------------------------------------


def built(form: Form) -> Posed:
    """The instance that the form describes; raises what `assembly` raises."""
    workload = {
        "sequence_length": form.sequence_length,
        "global_batch": form.global_batch,
        "micro_batch_sizes": list(form.micro_batch_sizes),
    }
    options, times = _options(form)
    with _folder() as folder:
        hosts = folder / "hosts.txt"
        hosts.write_text("".join(_lines(form)), encoding="utf-8")
        found = assembly(
            _config(form.model, folder),
            Listed("hostfile", [hosts], islands=_islands(form)),
            options,
            workload,
            _title(form),
            times=times,
        )
    document, rows = _links(found.document, found.assumed, form)
    return Posed(validated(Instance, document, _FORM), rows, form=form)


def _config(model: Model, folder: Path) -> Path | str:
    """Return the model's configuration as a file, or its name in the catalogue."""
    if model.config is None:
        return model.name
    place = folder / model.name.replace("/", "-")  # which the model is called after
    place.mkdir()
    path = place / "config.json"
    path.write_text(model.config, encoding="utf-8")
    return path


def _options(form: Form) -> tuple[list[str], str]:
    """Words of `-o`, and which times; `times=` is an option of the command itself."""
    words, times = [], "calibrated"
    for word in form.options:
        name, _, value = word.partition("=")
        if name == "times":
            times = value
        else:
            words.append(word)
    named = {word.partition("=")[0] for word in words}
    if not named & {"inter_gbytes_per_s", "port_gbytes_per_s"}:
        words.append(f"inter_gbytes_per_s={form.network_gbytes_per_s:g}")
    return words, times


def _title(form: Form) -> str:
    """Return the instance's name, as `llama-3-8b on 2 × 8 A100-80GB-SXM4`.

    Groups of equal nodes are named together; where their list is too long for a name,
    nodes and GPUs are counted.
    """
    alike: Counter[tuple[int, str]] = Counter()
    for group in form.groups:
        alike[group.gpus, group.card] += group.nodes
    listed = ", ".join(
        f"{nodes} × {gpus} {card}" if nodes > 1 else f"{gpus} {card}"
        for (gpus, card), nodes in alike.items()
    )
    title = f"{form.model.name} on {listed}"
    if len(title) <= LONGEST_NAME:
        return title
    total = sum(group.nodes * group.gpus for group in form.groups)
    return f"{form.model.name} on {alike.total()} nodes with {total} GPUs"


def _hosts(group: Group) -> list[str]:
    return [f"{group.name}-{i + 1}" for i in range(group.nodes)]


def _lines(form: Form) -> list[str]:
    """The hostfile."""
    cards = [f" slots={g.gpus} type={_word(g.card)}\n" for g in form.groups]
    return [
        host + card
        for group, card in zip(form.groups, cards, strict=True)
        for host in _hosts(group)
    ]


def _word(card: str) -> str:
    if len(card.split()) != 1:
        raise InstanceError.at(
            None,
            "groups.card",
            f"found {card!r}, expected a card of the catalogue; choose one",
        )
    return card


def _islands(form: Form) -> list[str]:
    """Groups of several nodes that a network of their own joins."""
    return [
        f"{','.join(_hosts(group))}={group.network_gbytes_per_s:g}GB/s"
        for group in form.groups
        if group.network_gbytes_per_s is not None and group.nodes > 1
    ]


def _links(
    document: Document, rows: tuple[Assumption, ...], form: Form
) -> tuple[dict[str, object], tuple[Assumption, ...]]:
    """With the links within nodes that the form tells, of which nothing is assumed."""
    rates = {
        host: group.link_gbytes_per_s for group in form.groups for host in _hosts(group)
    }
    nodes = [
        {**node, "intra_gbytes_per_s": rates[node["name"]]}
        if rates[node["name"]] is not None
        else node
        for node in document["cluster"]["nodes"]
    ]
    silent = {n["gpu"] for n in nodes if rates[n["name"]] is None and n["count"] > 1}
    shown = {clusters.links_of(gpu) for gpu in document["cluster"]["gpus"]}
    needed = {clusters.links_of(gpu) for gpu in silent}
    kept = tuple(row for row in rows if row.what not in shown - needed)
    cluster = {**document["cluster"], "nodes": nodes}
    return {**document, "cluster": cluster}, kept


# --- from the library, or a file --------------------------------------------------


def named(name: str) -> Posed:
    """An instance of the library with a cluster."""
    files.path_of_known(name)
    return opened(name)


def uploaded(file: File) -> Posed:
    """The instance of a file, and its plan where it is a plan file."""
    suffix = ".json" if file.name.lower().endswith(".json") else ".yaml"
    stem = Path(file.name).stem.encode()[:_LONGEST_STEM].decode(errors="ignore")
    with _folder() as folder:
        path = folder / f"{stem or 'instance'}{suffix}"
        path.write_text(file.text, encoding="utf-8")
        posed = opened(path)
    return posed._replace(known=known_of(posed.instance, posed.instance))


def opened(place: Place | Instance) -> Posed:
    """An instance, or of a plan file the instance and the plan."""
    if not isinstance(place, Instance) and _has_plan(Path(place)):
        instance, plan = api.posed_training(place)
        return Posed(instance, (), plan, known=known_of(place, instance))
    instance = api.load(place)
    _ = instance.planned_cluster
    return Posed(instance, known=known_of(place, instance))


def _has_plan(path: Path) -> bool:
    return path.is_file() and read_tree(path).get("plan") is not None


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for the time of a request; errors within do not say its name."""
    with TemporaryDirectory(prefix="hetopt-serve-") as name:
        try:
            yield Path(name)
        except HetoptError as error:
            raise Refusal(400, told(error, name)) from None


# --- changed ---------------------------------------------------------------------


def changed(instance: Instance, changes: Changes) -> Posed:
    """The instance with the changes; `InstanceError` where they do not fit together."""
    document = instance.model_dump(mode="json", exclude_unset=True)
    cluster = _cluster(document["cluster"], changes)
    workload = document["workload"]
    for field in ("global_batch", "sequence_length"):
        if (value := getattr(changes, field)) is not None:
            workload = {**workload, field: value}
    made = {**document, "cluster": cluster, "workload": workload}
    source = document.get("source") or instance.name
    suffix = "; changed on the page"
    if not source.endswith(suffix):
        made["source"] = source + suffix
    return Posed(validated(Instance, made, _FORM))


def _cluster(cluster: Document, changes: Changes) -> Document:
    nodes = cluster["nodes"]
    if changes.nodes is not None:
        nodes = [_node(node, nodes) for node in changes.nodes]
    used = {node["gpu"] for node in nodes}
    gpus = {name: fields for name, fields in cluster["gpus"].items() if name in used}
    for name, card in changes.cards.items():
        if name in gpus:
            gpus[name] = gpus[name] | card.model_dump(exclude_none=True)
    inter = dict(cluster.get("inter") or {})
    names = {node["name"] for node in nodes}
    if pairs := inter.get("pairs"):
        ends = ("first", "second")
        inter["pairs"] = [p for p in pairs if all(p[end] in names for end in ends)]
    if changes.network_gbytes_per_s is not None:
        inter["gbytes_per_s"] = changes.network_gbytes_per_s
    if changes.latency_us is not None:
        inter["latency_us"] = changes.latency_us
    return {**cluster, "nodes": nodes, "gpus": gpus, "inter": inter}


def _node(asked: ChangedNode, nodes: list[Document]) -> Document:
    """The node of that name and type, else like the first of its type."""
    of_type = [node for node in nodes if node["gpu"] == asked.gpu]
    if not of_type:
        known = sorted({node["gpu"] for node in nodes})
        raise InstanceError.at(
            None,
            "nodes.gpu",
            f"found {asked.gpu!r}, expected one of {', '.join(known)}; choose one",
        )
    like = next((n for n in of_type if n["name"] == asked.name), of_type[0])
    return {**like, "name": asked.name, "count": asked.count}
