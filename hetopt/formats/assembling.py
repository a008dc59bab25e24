"""An instance from the files that people have: a configuration and a list of hosts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..catalogue import Gpu, find_gpu
from ..catalogue import model as shape_of
from ..errors import InstanceError, UnknownName, quoted
from ..problems.training_plan import shapes, support
from ..problems.training_plan.support import PROGRAMS
from ..schema import Instance, ModelSpec
from ..text import units
from ..text.complaints import validated
from ..text.documents import Document, Fields
from .importing import (
    Imported,
    assumptions,
    calibrating,
    clusters,
    finetuning,
    imported,
    in_groups,
    listing,
    put_in,
    typed,
)

_OF_MODEL: Document = {"mtp": bool}
#: Of RL post-training; without answers none is meant.
_OF_ANSWERS: Document = {
    **{"answers": int, "prompt_tokens": int, "mean_tokens": int},
    **{"longest_tokens": int, "staleness": float},
}


@dataclass(frozen=True)
class Listed:
    """A cluster is listed in files of a format; `islands` share a faster network.

    An island is a text, as `a100-*=400Gb/s`.
    """

    format: str
    paths: Sequence[Path]
    islands: Iterable[str] = ()

    def read(self, options: Document) -> Imported:
        """Return the cluster, by its importer's options."""
        format = listing.format_named(self.format)
        found = put_in(listing.document(format, self.paths, options), format, None)
        if links := [_island(word) for word in self.islands]:
            inter = found.document["cluster"].setdefault("inter", {})
            inter["islands"] = [*inter.get("islands", ()), *links]
        return found


def assembly(
    config: Path | str,
    hosts: Listed,
    options: Iterable[str],
    workload: Document,
    name: str | None = None,
    times: str = "calibrated",
) -> Imported:
    """Return an instance with the model of `config` and the cluster of `hosts`.

    `config` is a file, or where there is none of that path a model's name in the
    catalogue; as text it is such a name, and no file is looked for.
    `options` are those of the cluster's importer, `mtp` of the configuration's,
    `answers` and their lengths of RL post-training, and of how and what is trained
    (`importing.assumptions`, `finetuning`), as `name=value`;
    `workload` has the rest of it, and where that has `costs`, they say how it is
    trained. `times` are `calibrated`, where all cards are in the catalogue and no
    `efficiency` is told, or `analytic`. Raises `InstanceError`
    for a format that describes no cluster, and for what the importers and the instance
    refuse.
    """
    if times not in calibrating.TIMES:
        raise UnknownName("times", times, [*calibrating.TIMES])
    listing.format_named(hosts.format)
    names = name, hosts.paths[0].stem
    return _assembly_from(config, hosts.read, options, workload, names, times)


def on_hosts(
    config: Path | str | ModelSpec,
    hosts: Sequence[clusters.Host],
    options: Iterable[str],
    workload: Document,
    name: str,
) -> Imported:
    """Return an instance with the model of `config` on hosts that no file lists.

    `config` may also be the model itself. All else is as in `assembly`.
    """
    return _assembly_from(
        config,
        lambda told: put_in(
            clusters.document("machines", (), hosts, told), "machines", None
        ),
        options,
        workload,
        (name, name),
    )


def _assembly_from(
    config: Path | str | ModelSpec,
    read_cluster: Callable[[Document], Imported],
    options: Iterable[str],
    workload: Document,
    names: tuple[str | None, str],
    times: str = "calibrated",
) -> Imported:
    """Return the instance of `assembly`, whose cluster a function reads by its options.

    Of the `names` the first is the instance's, the second the hosts', for where it has
    none.
    """
    name, hosts = names
    own: Document = {}
    if "costs" not in workload:
        own = assumptions.OPTIONS | finetuning.OPTIONS | calibrating.OPTIONS
    told = typed({**clusters.OPTIONS, **own, **_OF_MODEL, **_OF_ANSWERS}, options)
    how = {name: told.pop(name) for name in own if name in told}
    read = _model(config, {name: told.pop(name) for name in _OF_MODEL if name in told})
    model = read.document
    workload = {**workload, **_generation(told)}
    found = read_cluster(told)
    cluster = found.document["cluster"]
    cards = {name: find_gpu(name) for name in cluster["gpus"]}
    cluster["gpus"] = finetuning.with_links(cluster["gpus"], cards, how)
    trained, rows = _training_fields(cards, how) if own else ({}, ())
    made = {
        "name": name or f"{model['model']['name']}-on-{hosts}",
        "source": f"{model['source']}; {found.document['source']}",
        "model": model["model"],
        "cluster": cluster,
        "workload": {**workload, **trained},
    }
    data = validated(Instance, made, "the assembled instance", file="")
    lacks = shapes.never_run(data)
    if own and lacks and "runs_on" not in how:
        words = [feature.value for feature in lacks]
        able = [name for name in PROGRAMS if not support.lacking(data.on(name))]
        made["workload"], rows = assumptions.runner(made["workload"], words, able, rows)
    assumed = (*read.assumed, *found.assumed, *rows)
    if not own or times == "analytic" or "efficiency" in told:
        return Imported(in_groups(made), assumed)
    made, more = calibrating.calibrate(made, cards, how, reserved="reserve_mib" in told)
    validated(Instance, made, "the assembled instance", file="")
    if "calibration" in made["workload"]["costs"]:
        newer = {row.what for row in more}
        assumed = tuple(
            row
            for row in assumed
            if not (row.what.startswith(assumptions.SHARE) or row.what in newer)
        )
    return Imported(in_groups(made), (*more, *assumed))


def _generation(told: Document) -> Document:
    """Return what options say of answers, which go from them."""
    given = {name: told.pop(name) for name in _OF_ANSWERS if name in told}
    tokens = {x: given.pop(f"{x}_tokens", None) for x in ("mean", "longest")}
    if not given and not any(tokens.values()):
        return {}
    lengths = {x: y for x, y in tokens.items() if y is not None}
    return {"generation": {**given, "answer_tokens": lengths}}


def _model(config: Path | str | ModelSpec, told: Fields) -> Imported:
    """Return the model of a configuration, or of the catalogue: its shape alone."""
    if isinstance(config, ModelSpec):
        document = config.model_dump(mode="json", exclude_unset=True)
        return Imported({"model": document, "source": f"model {config.name}"})
    name = str(config)
    is_path = isinstance(config, Path) and len(config.parts) > 2  # not `OWNER/MODEL`
    if isinstance(config, Path) and (
        is_path or config.exists() or config.suffix == ".json"
    ):
        words = [f"{option}={value}" for option, value in told.items()]
        return imported("huggingface", [config], words, None)
    row = assumptions.Assumption(
        f"norms, activation and dropout of {name}",
        "layer norms, GELU, dropout",
        "the catalogue has only the model's shape",
        "give the model's config.json",
    )
    shape = shape_of(name)
    made = {"model": shape, "source": f"shape of {shape['name']} in the catalogue"}
    return Imported(made, (row,))


def _training_fields(
    cards: Mapping[str, Gpu | None], how: Fields
) -> tuple[Document, tuple[assumptions.Assumption, ...]]:
    """Return the workload's fields of how and what is trained, and what is assumed."""
    fields, rows = assumptions.training(cards, how)
    adapters, more = finetuning.trained_part(how)
    optimiser, others = finetuning.optimiser_fields(how)
    costs = fields["costs"] | adapters | optimiser
    return fields | {"costs": costs}, (*rows, *more, *others)


def _island(word: str) -> Document:
    """`a100-*,h100-*=400Gb/s@5us` as an island of a cluster; the latency may lack."""
    names, equals, link = word.rpartition("=")
    rate, _, latency = link.partition("@")
    try:
        if not equals or not all(listed := names.split(",")):
            raise ValueError(f"found {quoted(word)}, expected HOSTS=RATE")
        island: Document = {
            "nodes": [name.strip() for name in listed],
            "gbytes_per_s": units.whole(units.parse(rate, units.GBYTES_PER_S)),
        }
        if latency:
            number = units.parse(latency, units.MICROSECONDS)
            island["latency_us"] = units.whole(number)
    except ValueError as error:
        raise InstanceError(
            f"--island {word}: {error}; say it as a100-*=400Gb/s or a1,a2=25GB/s@5us"
        ) from None
    return island
