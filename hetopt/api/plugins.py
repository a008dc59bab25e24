"""Planners and statements of others: installed, in a file, or a function at hand.

A package names its modules by entry points (`hetopt.planners`, `hetopt.formulations`,
`hetopt.scheduling.policies`, `hetopt.formats`), and they are found by name like ours. A
file is a word that ends in `.py`; a function is a planner of training plans.
"""

import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .. import problems, registry
from ..errors import InstanceError, PluginBroken
from ..text.complaints import validated
from .calling import not_one

Plugin = str | Path | Callable[..., Any]
_OURS = ("seed", "deadline")
#: What an entry of a folder must have besides its `problem`.
MAKES = {"planners": "plan", "formulations": "build", "scheduling.policies": "policy"}
#: The problem of an entry that names none.
_USUAL = {"planners": "training_plan", "scheduling.policies": "job_scheduling"}


def named(given: Plugin, folder: str = "planners") -> str:
    """The name under which a folder of the registry has it from now on.

    Raises `InstanceError` for a file that is not there, `PluginBroken` for one that
    fails or has not what such an entry has.
    """
    found, name = placed(given)
    if found is not None and found != folder:
        raise PluginBroken(
            f"{given}: found one of {found}, expected one of {folder}; name another"
        )
    return name


def placed(given: Plugin) -> tuple[str | None, str]:
    """The folder of a file or function, which is added to it, and its name there.

    None for a name, which may stand in any.
    """
    if callable(given):
        return "planners", of_function(given)
    if not isinstance(given, str | Path):
        raise not_one(
            "planner", given, "a name, a file or a function; seconds are limits=..."
        )
    if isinstance(given, Path) or given.endswith(".py"):
        return of_file(Path(given))
    return None, given


def of_file(path: Path) -> tuple[str, str]:
    """Load a Python file, which runs it, and make it an entry under its own name.

    A planner's `plan` is a function as `of_function` takes it.
    """
    module, name = loaded(path), path.stem.replace("-", "_")
    for folder, makes in MAKES.items():
        problem = getattr(module, "problem", _USUAL.get(folder))
        if not callable(getattr(module, makes, None)) or problem is None:
            continue
        module.problem = problem
        if folder == "planners":
            module.plan = _planner(module.plan, problem)
        registry.add(folder, name, module)
        return folder, name
    raise PluginBroken(
        f"{path}: found none of the functions {', '.join(MAKES.values())} (of a "
        "statement beside its `problem`), expected one; add it (CONTRIBUTING.md)"
    )


def loaded(path: Path) -> Any:
    """The module of a file."""
    if not path.is_file():
        raise InstanceError(f"{path}: found no file, expected a plug-in; name another")
    name = f"hetopt_plugin_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginBroken(
            f"{path}: found another kind of file, expected Python; name one that ends "
            "in .py"
        )
    module = module_from_spec(spec)
    sys.modules[name] = module  # where its own records look for their names
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever it is, it is not ours
        del sys.modules[name]
        raise PluginBroken.by(spec.origin or str(path), error) from error
    return module


def of_function(function: Callable[..., object]) -> str:
    """Make a function of an instance a planner under its own name.

    It may take `seed` and `deadline` (a `time.monotonic()` instant or None), returns a
    plan or plain data of one, and raises `NoPlan` or returns None where it has none.
    """
    name = getattr(function, "__name__", type(function).__name__)
    problem = "training_plan"
    entry = SimpleNamespace(
        problem=problem,
        plan=_planner(function, problem),
        __doc__=function.__doc__,
        __file__=_file(function),
    )
    registry.add("planners", name, entry)
    return name


def _file(function: Callable[..., object]) -> str:
    """Return the file that a function stands in; of other callables their type."""
    code = getattr(function, "__code__", None)
    return type(function).__name__ if code is None else str(code.co_filename)


def _planner(function: Callable[..., object], problem: str) -> Callable[..., Any]:
    """Return a planner that gives a function what it takes, and reads plain data."""
    file = _file(function)
    told = list(signature(function).parameters.values())
    rest = [one for one in told[1:] if one.kind is not Parameter.VAR_KEYWORD]
    known = {one.name for one in rest}

    def plan(data: object, **words: object) -> Any:
        given = {k: v for k, v in words.items() if k in known or k not in _OURS}
        made = function(data, **given)
        kind = problems.get(problem).Plan
        if isinstance(made, dict):
            try:
                return validated(kind, made, file, ("plan",))
            except InstanceError as error:
                raise PluginBroken(str(error), file=file) from error
        if made is not None and not isinstance(made, kind):
            wrong = not_one("the plan", made, f"a {kind.__name__}, a dict or None")
            raise TypeError(str(wrong))  # not of ours: the plug-in's
        return made

    first = Parameter("data", Parameter.POSITIONAL_OR_KEYWORD)
    words = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in rest]
    plan.__signature__ = Signature([first, *words])  # type: ignore[attr-defined]
    return plan
