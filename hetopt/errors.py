"""The errors are what hetopt raises on purpose, under one root.

A message says what, where, what was found, what was expected and the remedy.
Infeasible and out of time are results, not errors.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from traceback import extract_tb
from typing import Any, Self

Place = str | PathLike[str]
_MOST_SHOWN = 60


def cut(text: str, most: int = _MOST_SHOWN) -> str:
    """Text as a message shows it, shortened where somebody wrote a very long one."""
    return text if len(text) <= most else text[: most - 3] + "..."


def escaped(text: str) -> str:
    """A text whose unprintable characters, as newlines, are their escapes."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def quoted(text: str) -> str:
    """A text as Python writes it, unprintable characters by escapes; shortened."""
    return cut(repr(text[:100]))


class HetoptError(Exception):
    """Root of the errors that hetopt raises on purpose.

    `kind` names the class for other programs, and stays what it is. `file` and `field`
    say where the error lies, as far as that is known; the message says it, too.
    """

    kind = "hetopt_error"

    def __init__(
        self, message: str = "", *, file: Place | None = None, field: str | None = None
    ) -> None:
        super().__init__(message)
        self.file = str(file) if file else None
        self.field = field or None

    @classmethod
    def at(cls, file: Place | None, field: str | None, words: str) -> Self:
        """An error whose message begins with its place, as far as it is known."""
        parts = [str(part) for part in (file, field) if part]
        return cls(": ".join([*parts, words]), file=file, field=field)

    @classmethod
    def of(cls, file: Place | None, words: str) -> Self:
        """An error of a whole file."""
        return cls.at(file, None, words)


class InstanceError(HetoptError, ValueError):
    """An instance, plan or problem file that cannot be used as it is."""

    kind = "instance_error"


class CannotWrite(InstanceError):
    """A file, a folder or standard output that cannot be written."""

    kind = "cannot_write"


class WrongType(HetoptError, TypeError):
    """An argument of a type that the function does not take."""

    kind = "wrong_type"


class MixedData(HetoptError, ValueError):
    """Things that belong to different instances were put together."""

    kind = "mixed_data"


class UnknownName(HetoptError, LookupError):
    """A name that no registry knows; the message lists the ones it does."""

    kind = "unknown_name"

    def __init__(
        self, kind: str, name: str, known: list[str], *, remedy: str = ""
    ) -> None:
        listed = ", ".join(sorted(known))
        super().__init__(
            f"unknown {kind} {cut(name)!r}: expected one of {listed}{remedy}",
            field=kind,
        )


class BackendMissing(HetoptError, ImportError):
    """A solver that was asked for is not installed."""

    kind = "backend_missing"

    def __init__(self, name: str, package: str) -> None:
        super().__init__(f"back end {name!r} is not installed: pip install {package}")


class Unsupported(HetoptError):
    """A combination that cannot be carried, such as a product on a MIP solver."""

    kind = "unsupported"


class SolverFailed(HetoptError, RuntimeError):
    """A solver stopped without an answer that can be read."""

    kind = "solver_failed"


class RunFailed(HetoptError, RuntimeError):
    """A rank of a training run ended early; the message says which, and how."""

    kind = "run_failed"


class EngineFailed(HetoptError, RuntimeError):
    """The engine of jobs (Slurm, Ray, this machine) is out of reach, or refuses one."""

    kind = "engine_failed"


class PluginBroken(HetoptError):
    """An entry that others added to a registry, and that cannot be used."""

    kind = "plugin_broken"

    @classmethod
    def by(cls, file: str, error: BaseException) -> Self:
        """An error that a plug-in's file raised, or what hetopt says of its answer."""
        frames = extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == file]
        place = f"{file}, line {lines[-1]}" if lines else file
        words = f"{type(error).__name__}: {error}; fix it"
        return cls(f"{place}: {words}", file=file)


class NoPlan(HetoptError):
    """A planner's reason for returning no plan; callers turn it into a result."""

    kind = "no_plan"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in the midst of a search; `best` is the best that it had found by then."""

    def __init__(self, best: Any) -> None:
        super().__init__("interrupted with something found")
        self.best = best


@contextmanager
def keeping(best: Callable[[], object]) -> Iterator[None]:
    """A search within: Ctrl-C takes along what `best` gives then, unless it is None.

    So a planner's incumbent reaches the caller, who may take it or pass it on. What a
    search within this one had found is no answer to this one's question.
    """
    try:
        yield
    except KeyboardInterrupt:
        plan = best()
        raise KeyboardInterrupt if plan is None else Interrupted(plan) from None


class Ending(Exception):
    """Leaves a search where it has to end: no failure of whoever is at work."""


class OutOfTime(Ending):
    """Leaves a search at its deadline; whoever set the deadline catches it."""


@contextmanager
def in_time(name: str, best: Callable[[], object]) -> Iterator[None]:
    """Let a planner search within, until the end of its time: then its best counts.

    Ctrl-C takes that along, as `keeping` has it. `NoPlan` where it is None at the end
    of the time.
    """
    with keeping(best):
        try:
            yield
        except OutOfTime:
            if best() is None:
                why = f"{name}: no plan that fits was found in time"
                raise NoPlan(why) from None


class InternalError(HetoptError):
    """A bug of ours, shown as one."""

    kind = "internal_error"


class MethodFailed(InternalError):
    """One of our own methods raised what it should not."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(
            f"{name} failed: {type(error).__name__}: {error}; please report it"
        )


class BoundContradicted(InternalError):
    """A bound lies on the wrong side of an objective."""


class PlanRejected(InternalError):
    """The judge refused a plan that one of our own methods returned."""


class ObjectiveMismatch(InternalError):
    """The judge's objective differs from the one its maker claimed."""


@contextmanager
def naming(given: object) -> Iterator[None]:
    """Errors within name a file that is given, where they name none: what it says."""
    try:
        yield
    except InstanceError as error:
        if error.file is not None or not isinstance(given, str | PathLike):
            raise
        message = f"{given}: {error}"
        raise type(error)(message, file=given, field=error.field) from None
