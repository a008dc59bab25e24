"""What hetopt raises on purpose, under one root.

A message says what, where, what was found, what was expected and the remedy.
Infeasible and out of time are results, not errors.
"""


class HetoptError(Exception):
    """Root of the errors that hetopt raises on purpose."""


class InstanceError(HetoptError, ValueError):
    """An instance, plan or problem file that cannot be used as it is."""


class MixedData(HetoptError, ValueError):
    """Things that belong to different instances were put together."""


class UnknownName(HetoptError, LookupError):
    """A name that no registry knows; the message lists the ones it does."""

    def __init__(self, kind: str, name: str, known: list[str]) -> None:
        super().__init__(
            f"unknown {kind} {name!r}: expected one of {', '.join(sorted(known))}"
        )


class BackendMissing(HetoptError, ImportError):
    """A solver that was asked for is not installed."""

    def __init__(self, name: str, package: str) -> None:
        super().__init__(f"back end {name!r} is not installed: pip install {package}")


class Unsupported(HetoptError):
    """A combination that cannot be carried, such as a product on a MIP solver."""


class SolverFailed(HetoptError, RuntimeError):
    """A solver stopped without an answer that can be read."""


class NoPlan(HetoptError):
    """A planner's reason for returning no plan; callers turn it into a result."""


class InternalError(HetoptError):
    """A bug of ours, shown as one."""


class BoundContradicted(InternalError):
    """A bound lies on the wrong side of an objective."""


class PlanRejected(InternalError):
    """The judge refused a plan that one of our own methods returned."""


class ObjectiveMismatch(InternalError):
    """The judge's objective differs from the one its maker claimed."""
