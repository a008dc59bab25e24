"""Foreign files read by an importer, and written as a file of ours.

An importer of plans reads against an instance: the plan is checked, never trusted. Its
options are its own and `rank`, which of a ranked list is meant (the first by default).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ... import files, formats
from ...errors import InstanceError, UnknownName, Unsupported, escaped
from ...findings import Finding
from ...schema import Cluster, Instance, ModelSpec, group_fields
from ...text import options, writing
from ...text.complaints import validated
from ...text.documents import Document
from ...text.marks import marked
from ...text.parsing import yaml_text
from ..contract import Importer, PlanReader
from .assumptions import Assumption

_SUFFIXES = (".yaml", ".yml", ".json")
_TRUTH = {"true", "yes", "false", "no"}


@dataclass(frozen=True, repr=False)
class Imported(Finding, layout="listing.assumed"):
    """A document of ours, and what was taken for granted in it."""

    document: Document
    assumed: tuple[Assumption, ...] = ()

    def to_json(self) -> Document:
        """Return the document with `assumed`, a list of objects."""
        return {**self.document, "assumed": [row._asdict() for row in self.assumed]}

    def write(self, path: str | Path) -> None:
        """Write the document as a .yaml or .json file; `Unsupported` for another."""
        check(Path(path))
        write(Path(path), self.document)


def check(out: Path) -> None:
    """`Unsupported` where the suffix is not that of YAML or JSON."""
    if out.suffix.lower() not in _SUFFIXES:
        raise Unsupported(
            f"{out}: found suffix {out.suffix!r}, expected one of "
            f"{', '.join(_SUFFIXES)}"
        )


def split(
    format: str, words: Sequence[str], others: Sequence[str] = ()
) -> tuple[list[Path], list[str]]:
    """Paths among `words`, and `--name value` for options of a format as `name=value`.

    Dashes in names stand for underscores; an option that is true or false may stand
    alone. `others` are options that the command has besides, for a hint where a name
    is none of the format's: that is an `UnknownName`.
    """
    known = _options(formats.importer(format))
    paths: list[Path] = []
    options: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            paths.append(Path(word))
            continue
        flag, sign, value = word.lstrip("-").partition("=")
        name = flag.replace("-", "_")
        if name not in known or not word.startswith("--"):
            raise _unknown(name, [*known, *others])
        if not sign and known[name] is bool and (not left or left[0] not in _TRUTH):
            value = "true"
        elif not sign:
            if not left:
                raise InstanceError(f"{word}: found no value, expected one; add it")
            value = left.pop(0)
        options.append(f"{name}={value}")
    return paths, options


def imported(
    format: str, paths: Sequence[Path], options: Iterable[str], instance: str | None
) -> Imported:
    """Import files; with `instance`, put what they hold into that instance.

    For a format of plans it is a plan file. `options` are `name=value`. Raises
    `UnknownName` for a format or an option, `InstanceError` for files that cannot be
    used.
    """
    importer = formats.importer(format)
    if isinstance(importer, PlanReader):
        return Imported(_plan_file(format, paths, options, instance))
    if not paths and getattr(importer, "NEEDS_PATHS", True):
        raise InstanceError(f"import {format}: found no file, expected some; name them")
    told = typed(importer.OPTIONS, options)
    asked = "reserve_mib" in importer.OPTIONS and "reserve_mib" not in told
    if asked and instance is not None:  # whose own reserve is not kept twice
        own = files.load_instance(instance).workload.costs.memory.reserve_mib
        told |= {"reserve_mib": 0} if own else {}
    read = importer.read(paths, **told)
    _check_records(read, f"import {format}")
    if instance is None or not hasattr(importer, "completed"):
        found = put_in(read, format, instance)
    else:
        whole, rows = importer.completed(_join(read, format, instance), told)
        validated(Instance, whole, "the imported instance", file="")
        found = Imported(whole, (*read.get("assumed", ()), *rows))
    more = ()
    if hasattr(importer, "assumed"):
        more = importer.assumed(found.document, told)
    return Imported(in_groups(found.document), (*found.assumed, *more))


def in_groups(made: Document) -> Document:
    """Return the document of an instance, its cost settings in groups."""
    workload = made.get("workload", {})
    if "costs" not in workload:
        return made
    costs = group_fields(workload["costs"])
    return made | {"workload": workload | {"costs": costs}}


def _check_records(read: Document, what: str) -> None:
    """`InstanceError` where what was read could not be read again as a file of ours."""
    if "workload" in read:
        validated(Instance, read, what)
        return
    for field, record in (("model", ModelSpec), ("cluster", Cluster)):
        if field in read:
            validated(record, read[field], what, (field,))


def put_in(read: Document, what: str, instance: str | None) -> Imported:
    """Return what an importer read, by itself or within an instance."""
    if instance is None:
        assumed = tuple(read.get("assumed", ()))
        # Paths may have characters that no text has.
        made = {**read, "source": escaped(read.get("source", what))}
        made.pop("assumed", None)
        return Imported(made, assumed)
    whole = _join(read, what, instance)
    validated(Instance, whole, "the imported instance", file="")
    return Imported(whole, tuple(read.get("assumed", ())))


def _join(read: Document, what: str, instance: str) -> Document:
    base = files.load_instance(instance).model_dump(mode="json", exclude_unset=True)
    if "offers" in read:
        base.pop("cluster", None)
    if "cluster" in read:
        base.pop("offers", None)
    source = escaped(read.get("source", what))
    whole = {**base, **read, "source": f"{source}; model of {escaped(instance)}"}
    whole.pop("assumed", None)
    return whole


def write(out: Path, content: Document) -> None:
    """Write a document as YAML or JSON, by the suffix; it says its schema."""
    content = marked(content)
    if out.suffix.lower() == ".json":
        writing.write_json(out, content)
        return
    plain = json.loads(json.dumps(content, allow_nan=False))
    writing.write_text(out, yaml_text(plain, allow_unicode=True, width=100))


# --- plans -----------------------------------------------------------------------


def _plan_file(
    format: str, paths: Sequence[Path], options: Iterable[str], instance: str | None
) -> Document:
    importer = formats.importer(format)
    assert isinstance(importer, PlanReader)
    if instance is None:
        raise InstanceError(
            f"import {format}: a plan is read against an instance; give --instance"
        )
    if len(paths) != 1:
        raise InstanceError(f"found {len(paths)} files, expected one of plans; name it")
    data = files.load_instance(instance)
    given = typed(_options(importer), options)
    rank = given.pop("rank", 1)
    _ = data.planned_cluster
    claims = list(importer.claims(paths[0], data, **given))
    found = next((claim for claim in claims if claim.rank == rank), None)
    if found is None:
        ranks = [claim.rank for claim in claims]
        raise InstanceError(
            f"option rank={rank}: found ranks {min(ranks)} to {max(ranks)}, expected "
            "one of them; name it"
        )
    if found.plan is None:
        raise InstanceError(str(found.refused))
    own: Any = instance
    judged_on = found.data or data
    if judged_on != data or instance not in files.instance_names():
        own = judged_on.model_dump(mode="json", exclude_unset=True)
    return {"instance": own, "plan": found.plan.model_dump(mode="json")}


# --- options ---------------------------------------------------------------------


def _options(importer: Importer | PlanReader) -> Document:
    own = importer.OPTIONS
    return {**own, "rank": int} if isinstance(importer, PlanReader) else own


def typed(known: Document, words: Iterable[str]) -> Document:
    """`name=value` words as values of the types of `known`.

    `UnknownName` for a name that is none of these, `InstanceError` for a value that is
    not of its type.
    """
    texts = options.pairs(words)
    for name in texts:
        if name not in known:
            raise _unknown(name, list(known))
    given = {name: known[name] for name in texts}
    return options.checked("format", options.listed("the format", given), texts)


def _unknown(name: str, known: list[str]) -> UnknownName:
    """Return the nearest names where some are near, else all."""
    return UnknownName("option", name, get_close_matches(name, known, n=3) or known)
