"""Bounds of written results, derived again, independently of who found them.

An exact method may offer `recheck(data, certificate, bound) -> list[str]`: what is
missing for the bound to be proved by the certificate that the method left. The bound
of a training plan needs none where the cheap bound reaches it.
"""

from fractions import Fraction
from pathlib import Path
from typing import Any

from . import files, problems, registry
from .bounds import training_plan_bound
from .errors import InstanceError, Unsupported
from .parsing import read_tree
from .problems import Objective
from .schema import Record


def missing(result: str | Path, instance: str | Path | Record | None) -> list[str]:
    """What is missing for the bound of a result document; empty when it is proved.

    Raises `InstanceError` for a document without a bound or with a certificate that
    no method of ours left, `Unsupported` where a bound cannot be derived cheaply.
    """
    name, data, plan = files.load_plan(result, instance)
    document = read_tree(Path(result))
    bound = _bound(document, result)
    objective = problems.get(name).evaluate(data, plan).objective
    if objective is not None and _contradicted(name, bound, objective):
        return [f"the bound {bound} contradicts the document's own plan: {objective}"]
    if name == "training_plan":
        cheap = training_plan_bound(data)
        if cheap.value >= bound:
            return []
    return _by_certificate(name, data, document, bound, result)


def _by_certificate(
    name: str, data: Any, document: dict[str, Any], bound: Objective, file: str | Path
) -> list[str]:
    module: Any = registry.entry("exact", name)
    certificate = document.get("certificate")
    if not hasattr(module, "recheck") or certificate is None:
        raise Unsupported(
            f"{file}: a bound of {name} by {document.get('bound_source')!r} leaves "
            "nothing to check it by: solve again to prove it"
        )
    try:
        found: list[str] = module.recheck(data, certificate, bound)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InstanceError(
            f"{file}: certificate: {error!r}: expected one that `hetopt solve --out` "
            "wrote; write it anew"
        ) from error
    return found


def _bound(document: dict[str, Any], file: str | Path) -> Objective:
    """The bound, exactly where the document has it so."""
    pair, value = document.get("bound_exact"), document.get("bound")
    if (
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(part) is int for part in pair)
        and pair[1] > 0
    ):
        return Fraction(*pair)
    if type(value) is int:
        return value
    raise InstanceError(
        f"{file}: bound: found {value!r}, expected a whole number or bound_exact "
        "[numerator, denominator]; give a result document that has a bound"
    )


def _contradicted(name: str, bound: Objective, objective: Objective) -> bool:
    minimise = problems.get(name).sense == "minimise"
    return bound > objective if minimise else bound < objective
