"""Bounds of written results, derived again, independently of who found them.

An exact method may offer `Certificate`, the record that it leaves, and
`recheck(data, certificate, bound) -> list[str]`: what is missing for the bound to be
proved by such a record. The bound of a training plan needs none where the cheap bound
reaches it.
"""

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

from .. import files, problems, registry
from ..bounds.training_plan import training_plan_bound
from ..errors import InstanceError, Unsupported
from ..problems import Objective
from ..schema import Record
from ..text.complaints import shown, validated
from ..text.parsing import read_tree


def missing(result: str | Path, instance: str | Path | Record | None) -> list[str]:
    """What is missing for the bound of a result document; empty when it is proved.

    Raises `InstanceError` for a document without a bound or with a certificate that
    no method of ours left, `Unsupported` where a bound cannot be derived cheaply.
    """
    name, data, plan = files.load_plan(result, instance)
    document = read_tree(Path(result))
    bound = bound_of(document, result)
    objective = problems.get(name).evaluate(data, plan).objective
    if objective is not None and _contradicted(name, bound, objective):
        return [f"the bound {bound} contradicts the document's own plan: {objective}"]
    if name == "training_plan":
        cheap = training_plan_bound(data)
        if cheap.value >= bound:
            return []
    return by_certificate(name, data, document, bound, result)


def by_certificate(
    name: str, data: Any, document: dict[str, Any], bound: Objective, file: str | Path
) -> list[str]:
    """What is missing for the document's certificate to prove the bound.

    Raises `InstanceError` for a certificate that no method of ours left, `Unsupported`
    where there is none.
    """
    has_method = name in registry.names("exact")
    module: Any = registry.entry("exact", name) if has_method else None
    certificate = document.get("certificate")
    if not hasattr(module, "recheck") or certificate is None:
        raise Unsupported(
            f"{file}: a bound of {name} by {document.get('bound_source')!r} leaves "
            "nothing to check it by: solve again to prove it"
        )
    record = validated(module.Certificate, certificate, str(file), ("certificate",))
    found: list[str] = module.recheck(data, record, bound)
    return found


def bound_of(document: dict[str, Any], file: str | Path) -> Objective:
    """The bound of a document, exactly where it has it so; `InstanceError` without."""
    pair, value = document.get("bound_exact"), document.get("bound")
    if pair is None:
        if type(value) is int:
            return value
        raise InstanceError(
            f"{file}: bound: found {shown(value)}, expected a whole number or "
            "bound_exact [numerator, denominator]; give a result document that has a "
            "bound"
        )
    if not (
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(part) is int for part in pair)
        and pair[1] > 0
    ):
        raise InstanceError(
            f"{file}: bound_exact: found {shown(pair)}, expected [numerator, "
            "denominator], whole numbers, the second above 0; correct it"
        )
    exactly = Fraction(*pair)
    if not _is_near(value, exactly):
        raise InstanceError(
            f"{file}: bound: found {shown(value)}, expected what bound_exact says, "
            f"{shown(pair[0])} / {shown(pair[1])}; make them agree"
        )
    return exactly


def _is_near(value: Any, exactly: Fraction) -> bool:
    """Whether a number is the fraction, as far as a float can be."""
    if type(value) is float and not math.isfinite(value):
        return False
    if type(value) not in (int, float):
        return False
    return abs(Fraction(value) - exactly) <= abs(exactly) * Fraction(1, 10**12)


def _contradicted(name: str, bound: Objective, objective: Objective) -> bool:
    minimise = problems.get(name).sense == "minimise"
    return bound > objective if minimise else bound < objective
