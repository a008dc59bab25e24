"""Instances of the library or of a file, and the plan of a plan file."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from .. import api, files
from ..api.calling import Place
from ..api.starts import NOTHING, Known, known_of
from ..errors import HetoptError
from ..plans import TrainingPlan
from ..schema import Instance, Name, Record
from ..text.documents import Document
from ..text.parsing import read_tree
from .refusals import Refusal, told

_LONGEST_STEM = 100  # bytes of an uploaded file's name that are kept


class Posed(NamedTuple):
    """An instance, the plan of its file, and others known."""

    instance: Instance
    plan: TrainingPlan | None = None
    known: Known = NOTHING


class Named(Record):
    """An instance of the library."""

    name: Name


class File(Record):
    """A file that was uploaded: an instance, or a plan with its instance."""

    name: Name
    text: str


@cache
def examples() -> dict[str, str]:
    """Instances of the library with a cluster, each with a sentence about it."""
    trees = {n: read_tree(files.path_of_known(n)) for n in files.instance_names()}
    return {name: _sentence(tree) for name, tree in trees.items() if "cluster" in tree}


def _sentence(tree: Document) -> str:
    """Say which cards train which model, and whose instance that is."""
    gpus: Counter[str] = Counter()
    for node in tree["cluster"]["nodes"]:
        gpus[node["gpu"]] += node["count"]
    held = ", ".join(f"{count} {gpu}" for gpu, count in gpus.items())
    model = tree["model"].get("name") or tree["model"]["preset"]
    return f"{held} train {model}. {tree['source'].partition(';')[0]}."


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
    return posed._replace(known=known_of(posed.instance))


def opened(place: Place | Instance) -> Posed:
    """An instance, or of a plan file the instance and the plan."""
    if not isinstance(place, Instance) and _has_plan(Path(place)):
        instance, plan = api.posed_training(place)
        return Posed(instance, plan, known_of(instance))
    instance = api.load(place)
    _ = instance.planned_cluster
    return Posed(instance, known=known_of(instance))


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
