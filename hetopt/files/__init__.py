"""Files: instances, problems and plans are read and checked.

Every reader takes a path, and an instance also by its name in the library. What is
wrong with a file is an `InstanceError` that names the file, the field, what was found,
what was expected and the remedy, one line a problem.
"""

import json
import os
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from .. import catalogue, problems
from ..errors import HetoptError, InstanceError, MixedData, UnknownName, cut, naming
from ..schema import Instance, Profile, Record
from ..text.complaints import (
    Guide,
    listed,
    nearest,
    path_of,
    shown,
    unknown_name,
    validated,
)
from ..text.documents import Document, Fields
from ..text.marks import unmarked
from ..text.parsing import read_tree, read_value

Given = Record | str | Path


@cache
def guide() -> Guide:
    """Return what messages about an instance say beside its schema."""
    groups: list[Document] = read_value(Path(__file__).with_name("hints.yaml"))
    return Guide(
        place="`hetopt list fields` describes every field",
        hints={name: group["say"] for group in groups for name in group["names"]},
    )


@cache
def _library() -> dict[str, Path]:
    """The shipped instances: `<family>/<name>` and the file."""
    root = Path(import_module("hetopt.instances").__path__[0])
    found = (
        path for path in root.glob("*/*.yaml") if path.parent.name != "__pycache__"
    )
    return {f"{p.parent.name}/{p.stem}": p for p in sorted(found)}


@cache
def _states_problem(name: str) -> bool:
    """Return whether a file of the library is a problem file, which begins so."""
    with _library()[name].open(encoding="utf-8") as file:
        return file.readline().startswith("problem:")


def instance_names() -> list[str]:
    """Names of the instances of the library, sorted."""
    return sorted(name for name in _library() if not _states_problem(name))


def problem_names() -> list[str]:
    """Names of the problem files of the library, such as queues of jobs, sorted."""
    return sorted(name for name in _library() if _states_problem(name))


def in_library(name: str) -> bool:
    """Return whether the library has an instance or a problem file of that name."""
    return name in _library()


def path_of_known(name: str) -> Path:
    """The file of a name of the library; `UnknownName` for another."""
    if name not in _library():
        raise _unknown_instance(name)
    return _library()[name]


def load_instance(name_or_path: str | Path) -> Instance:
    """An instance by its name in the library or its path (YAML or JSON).

    A name such as `generated:islands/64/7` is one of `hetopt.files.generated`. Raises
    `UnknownName` for a name that the library lacks, `InstanceError` for a file that is
    absent or wrong.
    """
    if _is_generated(name_or_path):
        return _generated_instance(str(name_or_path))
    path = _path_of_instance(name_or_path)
    tree = unmarked(read_tree(path), path)
    if tree.get("problem") == "job_scheduling":
        raise InstanceError.at(
            path,
            "problem",
            "found a queue of jobs, expected an instance with one model; use `hetopt "
            "schedule`",
        )
    return _instance(tree, path)


def load_problem(path: str | Path) -> tuple[str, Any]:
    """The problem's name and its data, from a problem file or an instance.

    An instance with a cluster poses `training_plan`, one with offers `provisioning`.
    A generated family poses the problem that it is made for.
    """
    if _is_generated(path):
        return _generated_problem(str(path))
    file = _path_of_instance(path)
    return _problem(unmarked(read_tree(file), file), file)


def _problem(tree: dict[str, object], file: Path) -> tuple[str, object]:
    if "problem" in tree:
        name = _problem_name(tree, file)
        record = problems.get(name).Data
        if record is Instance:
            tree = {key: value for key, value in tree.items() if key != "problem"}
            return name, _instance(tree, file)
        return name, validated(record, tree, str(file))
    if "model" not in tree:
        raise InstanceError.of(
            file,
            "found neither problem nor model, expected a problem file with problem: "
            f"one of {', '.join(problems.names())}, or an instance; add it",
        )
    return _asked(_instance(tree, file), file)


def load_plan(path: str | Path, instance: Given | None = None) -> tuple[str, Any, Any]:
    """The problem's name, its data and the plan of a plan file or result document.

    The file names its instance or holds it; `instance` (a record, a name or a path)
    stands in for it. `MixedData` where a result document was made for data other than
    what its own instance field leads to.
    """
    file = Path(path)
    return _plan(unmarked(read_tree(file), file), file, instance)


class PlanFile(NamedTuple):
    """A plan file is read as its parts; a result document may have no plan."""

    problem: str
    data: Any
    plan: Any
    document: Document


def load_claim(path: str | Path, instance: Given | None = None) -> PlanFile:
    """Return what `load_plan` returns, with the document; the plan may be None."""
    file = Path(path)
    tree = unmarked(read_tree(file), file)
    if "status" in tree and tree.get("plan", tree) is None:  # a result's without one
        return PlanFile(*_of_plan(tree, file, instance), None, tree)
    return PlanFile(*_plan(tree, file, instance), tree)


def _plan(tree: Document, file: Path, instance: Given | None) -> tuple[str, Any, Any]:
    if tree.get("plan") is None:
        state = (
            "found no plan" if "plan" not in tree else "found a result without a plan"
        )
        raise InstanceError.of(
            file,
            f'{state}, expected a plan file {{"instance": ..., "plan": {{...}}}}; give '
            "a file that holds a plan",
        )
    name, data = _of_plan(tree, file, instance)
    plan = validated(problems.get(name).Plan, tree["plan"], str(file), ("plan",))
    return name, data, plan


def _of_plan(tree: Document, file: Path, instance: Given | None) -> tuple[str, Any]:
    name = (
        _problem_name(tree, file) if "problem" in tree else _guess_problem(tree, file)
    )
    if instance is not None:
        data = _data_given(name, instance, file)
    else:
        data = _own_data(name, tree, file)
        digest = tree.get("digest")
        if digest is not None and digest != data.digest:
            raise MixedData.at(
                file,
                "digest",
                f"found {shown(digest)}, expected {data.digest} of instance "
                f"{getattr(data, 'name', name)!r}; the plan was made for other data: "
                "name that with --instance",
            )
    return name, data


def poser_of(plan: str | Path | Mapping[str, object]) -> Instance | None:
    """Return the instance that posed the problem of a result document, if it has one.

    Raises `InstanceError` where it cannot be used.
    """
    if isinstance(plan, Mapping):
        file, tree = Path("plan"), _plain(plan, "plan")
    else:
        file, tree = Path(plan), read_tree(Path(plan))
    own = tree.get("posed_by")
    if not isinstance(own, dict):
        return None
    return _instance(unmarked(own, file), file, ("posed_by",))


# --- the same as plain data ------------------------------------------------------


def instance_of(tree: Mapping[str, object]) -> Instance:
    """An instance of what its file would say; files that it names lie here.

    Raises `InstanceError` for what is no such data.
    """
    file = Path("instance")
    return _instance(unmarked(_plain(tree, "instance"), file), file)


def problem_of(tree: Fields) -> tuple[str, Any]:
    """The problem's name and its data, of what a problem file or instance would say."""
    file = Path("problem")
    return _problem(unmarked(_plain(tree, "problem"), file), file)


def plan_of(
    tree: Mapping[str, object], instance: Given | None = None
) -> tuple[str, Any, Any]:
    """Problem, data and plan, of what a plan file or result document would say.

    With `instance` it may be the plan alone.
    """
    file = Path("plan")
    plain = unmarked(_plain(tree, "plan"), file)
    if instance is not None and "plan" not in plain:
        plain = {"plan": plain}
    return _plan(plain, file, instance)


def _plain(tree: Mapping[str, object], what: str) -> dict[str, object]:
    """A copy that holds what a JSON file can hold, and nothing else."""
    try:
        plain: Document = json.loads(json.dumps(dict(tree)))
    except (TypeError, ValueError, RecursionError) as error:
        raise InstanceError.of(
            what,
            f"found a dict with {error}, expected text, numbers, lists and dicts; "
            "write it as the file would say it",
        ) from None
    return plain


class Origin(NamedTuple):
    """The origin is what a plan was made for: the name, if any, and the digest."""

    name: str | None
    digest: str


def origin_of(tree: Document, path: str | Path) -> Origin | None:
    """Return what the plan of a plan file was made for; None where it does not say.

    A result document has the digest; of another file it is that of its own instance.
    """
    own, digest = tree.get("instance"), tree.get("digest")
    name = own.get("name") if isinstance(own, dict) else own
    if not isinstance(digest, str):
        try:
            digest = _of_plan(tree, Path(path), None)[1].digest
        except HetoptError:  # its own instance may be gone, or be none
            return None
    return Origin(name if isinstance(name, str) else None, digest)


def _path_of_instance(name_or_path: str | Path) -> Path:
    name = str(name_or_path)
    if isinstance(name_or_path, str) and name in _library():
        return _library()[name]
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml", ".json") or os.path.exists(path):
        return path
    raise _unknown_instance(name)


def _unknown_instance(name: str) -> UnknownName:
    near = get_close_matches(cut(name, 300), sorted(_library()), n=5, cutoff=0.4)
    remedy = ", or a file; `hetopt list instances` has all names"
    if name in catalogue.models():
        remedy += f"; of the model {name} and your hosts `hetopt assemble` makes one"
    return UnknownName("instance", name, near or sorted(_library()), remedy=remedy)


def _instance(tree: Document, file: Path, at: tuple[str, ...] = ()) -> Instance:
    tree = {**tree, "model": _model(tree.get("model"), file, (*at, "model"))}
    if tree["model"] is None:
        del tree["model"]
    tree = _with_profile(tree, file, at)
    return validated(Instance, tree, str(file), at, guide=guide())


def _with_profile(tree: Document, file: Path, at: tuple[str, ...]) -> dict[str, object]:
    workload: Any = tree.get("workload")
    costs = workload.get("costs") if isinstance(workload, dict) else None
    if not isinstance(costs, dict):
        return tree
    compute = costs.get("compute")
    if isinstance(compute, dict):
        place = (*at, "workload", "costs", "compute")
        costs = {**costs, "compute": _with_rows(compute, file, place)}
    costs = _with_rows(costs, file, (*at, "workload", "costs"))
    return {**tree, "workload": {**workload, "costs": costs}}


def _with_rows(
    fields: dict[str, object], file: Path, at: tuple[str, ...]
) -> dict[str, object]:
    name = fields.get("profile")
    if not isinstance(name, str):
        return fields
    field = path_of((*at, "profile"))
    profile = _beside(name, file, field)
    rows = read_value(profile)
    if not isinstance(rows, list):
        raise InstanceError.at(
            file,
            field,
            f"{cut(name)} holds {shown(rows)}, expected a list of rows "
            "with gpu, tensor_parallel, micro_batch, layer_us; correct that file",
        )
    for number, row in enumerate(rows):
        validated(Profile, row, str(profile), (number,))
    return {**fields, "profile": rows}


def _model(model: object, file: Path, at: tuple[str, ...]) -> object:
    if not isinstance(model, dict) or not {"preset", "config"} & set(model):
        return model
    from ..catalogue.architectures import from_config

    field = path_of(at)
    rest = {k: v for k, v in model.items() if k not in ("preset", "config")}
    if "preset" in model and "config" in model:
        raise InstanceError.at(
            file, field, "found both of preset and config, expected one; remove one"
        )
    if "preset" in model:
        preset = model["preset"]
        if not isinstance(preset, str) or preset not in catalogue.models():
            found = unknown_name("a known preset", preset, sorted(catalogue.models()))
            raise InstanceError.at(file, f"{field}.preset", found)
        return {**catalogue.model(preset), **rest}
    config = _beside(model["config"], file, f"{field}.config")
    try:
        called = str(rest.get("name", config.stem))
        spec = from_config(read_tree(config), called)
    except InstanceError as error:
        raise InstanceError.at(file, f"{field}.config", str(error)) from None
    return {**spec.model_dump(mode="json", exclude_unset=True), **rest}


def _beside(name: object, file: Path, field: str) -> Path:
    """A file named in another: it must lie in that file's folder or below."""
    if not isinstance(name, str) or not name:
        raise InstanceError.at(
            file, field, f"found {shown(name)}, expected the name of a file; name one"
        )
    folder = file.resolve().parent
    if not (folder / name).resolve().is_relative_to(folder):
        raise InstanceError.at(
            file,
            field,
            f"found {shown(name)}, expected a file in the folder of {file.name} or "
            "below; move it there",
        )
    return file.parent / name


def _problem_name(tree: dict[str, object], file: Path) -> str:
    name = tree["problem"]
    if not isinstance(name, str) or name not in problems.names():
        found = unknown_name("a known problem", name, problems.names())
        raise InstanceError.at(file, "problem", found)
    return name


_MARK = {
    "engines": "post_training",
    "pipelines": "training_plan",
    "groups": "device_grouping",
    "order": "layer_partition",
    "stages": "provisioning",
    "jobs": "job_scheduling",
    "served": "job_round",
    "transfers": "recovery",
}


def _guess_problem(tree: dict[str, object], file: Path) -> str:
    """The problem of a plan that does not name it, by the plan's own fields."""
    plan = tree["plan"]
    fields = plan if isinstance(plan, dict) else {}
    for mark, problem in _MARK.items():
        if mark in fields:
            return problem
    if fields:
        known = nearest(next(iter(fields)), sorted(_MARK))
        raise InstanceError.at(
            file,
            "plan",
            f"found the fields {listed(fields)}, expected pipelines (or groups, order, "
            f"stages of a subproblem); {known}",
        )
    return "training_plan"


def _own_data(name: str, tree: dict[str, object], file: Path) -> Any:
    own = tree.get("instance")
    if isinstance(own, dict):
        own = unmarked(own, file)
        record = problems.get(name).Data
        if record is Instance or "model" in own:
            return _pose(name, _instance(own, file, ("instance",)), file)
        return validated(record, own, str(file), ("instance",))
    if isinstance(own, str):
        if _is_generated(own) or (own in _library() and _states_problem(own)):
            return _data_given(name, own, file)
        if own in _library():
            return _pose(name, load_instance(own), file)
        if Path(own).suffix in (".yaml", ".yml", ".json"):
            return _data_given(name, _beside(own, file, "instance"), file)
    whole = ""
    if own is None:
        found = "missing; expected a name of the library, or an object"
    else:
        found = unknown_name("a name of the library", own, instance_names())
        whole = "; what --out writes holds it" if isinstance(own, str) else ""
        if len(found) > 300:
            found = f"found {shown(own)}, expected a name of the library, or an object"
    raise InstanceError.at(file, "instance", f"{found}; or give --instance FILE{whole}")


def _data_given(name: str, given: Given, file: Path) -> Any:
    if isinstance(given, Record):
        return _pose(name, given, file) if isinstance(given, Instance) else given
    found, data = load_problem(given)
    if found == name:
        return data
    if isinstance(data, Instance):
        return _pose(name, data, file)
    raise MixedData.at(
        given,
        "problem",
        f"found a problem {found!r}, the plan is of {name!r}; give the data that the "
        "plan was made for",
    )


def _asked(instance: Instance, file: Path) -> tuple[str, object]:
    name = "training_plan" if instance.cluster is not None else "provisioning"
    return name, _pose(name, instance, file)


def _is_generated(name: object) -> bool:
    return isinstance(name, str) and name.startswith("generated:")


def _generated_instance(name: str) -> Instance:
    from .generated import instance

    if (made := instance(name)) is None:
        raise InstanceError.of(
            name,
            "found a problem stated by itself, expected an instance with a model; use "
            "`hetopt solve` or `hetopt schedule`",
        )
    return made


def _generated_problem(name: str) -> tuple[str, object]:
    from .generated import instance, posed

    made = instance(name)
    return posed(name) if made is None else _asked(made, Path(name))


def _pose(name: str, instance: Instance, file: Path) -> object:
    """The problem that an instance poses; messages begin with the file at hand."""
    with naming(file):
        return problems.get(name).data(instance)
