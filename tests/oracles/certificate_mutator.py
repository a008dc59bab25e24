"""Honest certificates of tiny training plans, and what a forger would make of them.

The optimum of each is found by trying all plans, so that a document whose bound is
beyond it is known to be a lie, whatever its certificate says.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import yaml
from brute_force_training import best_training_plan, tiny_instance
from refuters import by_whole, least_alone_us, refutation

from hetopt.api import judging
from hetopt.errors import InstanceError, Unsupported
from hetopt.schema import Instance
from hetopt.text.parsing import parse_tree

SHARES = (0.9, 0.6, 0.3)  # of the optimum, to be refuted
SUBJECTS = 8
PROBLEMS = 400  # seeds to look for them
FILE = "forged"  # how complaints name the document

Tree = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """An instance, its optimum, and a bound with the certificate that shows it."""

    data: Instance
    optimum: int
    bound: int
    certificate: Tree

    def is_true(self, bound: int) -> bool:
        """Whether no plan is better than `bound`."""
        return bound <= self.optimum


@cache
def subjects() -> tuple[Subject, ...]:
    """Instances that have a plan and a certificate with something in it."""
    found = []
    for seed in range(PROBLEMS):
        if (subject := _subject(seed)) is not None:
            found.append(subject)
        if len(found) == SUBJECTS:
            break
    return tuple(found)


@cache
def subject_of(data: str) -> Subject:
    """The instance that a JSON text holds, and its optimum; nothing is claimed."""
    record = Instance.model_validate_json(data)
    found = best_training_plan(record)
    assert found is not None
    return Subject(record, found[0], found[0], {})


def _subject(seed: int) -> Subject | None:
    instance = tiny_instance(seed)
    sizes = instance.workload.micro_batch_sizes
    if instance.planned_cluster.gpu_count > 3 or max(sizes) > 2:
        return None  # trying all plans takes seconds
    best = best_training_plan(instance)
    if best is None:
        return None
    alone_us = least_alone_us(instance, best[0])
    bound = by_whole(instance, 0.1 * best[0], 1.5 * best[0], alone_us)
    for share in SHARES:
        found = refutation(bound, share * best[0], 8)
        if found.proved and (record := found.certificate()) is not None:
            tree = record.model_dump(mode="json", exclude_none=True)
            return Subject(instance, best[0], int(share * best[0]) + 1, tree)
    return None


# --- documents -------------------------------------------------------------------


def document(bound: int, certificate: Any) -> Tree:
    """The part of a result document that a bound is checked by."""
    return {"bound": bound, "certificate": certificate}


def written(tree: Tree, *, is_json: bool) -> str:
    """The document as a forger writes it: infinities as numbers that overflow."""
    text = json.dumps(tree)
    for word, number in (("-Infinity", "-1e400"), ("Infinity", "1e400")):
        text = text.replace(f"{word}", number)
    if is_json:
        return text
    return yaml.safe_dump(json.loads(text)).replace(".inf", "1e400")


def outcome(subject: Subject, text: str, *, is_json: bool) -> tuple[str, Any]:
    """What `hetopt check --bound` makes of a document, and the bound it speaks of.

    "accepted", "not proved", "refused" or "unsupported"; whatever else is raised is a
    finding.
    """
    try:
        tree = parse_tree(text, FILE, is_json=is_json)
        bound = judging.bound_of(tree, FILE)
        missing = judging.by_certificate(
            "training_plan", subject.data, tree, bound, FILE
        )
    except InstanceError as error:
        return ("refused" if str(error).startswith(FILE) else "no file named"), None
    except Unsupported:
        return "unsupported", None
    return ("not proved" if missing else "accepted"), bound


# --- what a forger changes ---------------------------------------------------------

NUMBERS = (
    0,
    -1,
    1,
    2,
    0.5,
    -0.0,
    1e-300,
    1e-9,
    1e9,
    1e18,
    1e300,
    1e308,
    float("inf"),
    float("-inf"),
    2**31,
    2**53,
    2**63,
    10**400,
)
OTHERS = (None, True, False, "nan", "inf", "1e400", "0", "", [], {}, [[]], {"at": 1})
FACTORS = (0.0, 0.5, 0.9, 1 - 1e-7, 1 + 1e-7, 1.001, 1.1, 2, 10, 1e6, 1e12, -1)


def changed(rng: Random, subject: Subject) -> tuple[str, Tree]:
    """A document with one to three changes; the first one's name."""
    certificate = json.loads(json.dumps(subject.certificate))
    bound = subject.bound
    if rng.random() < 0.85:  # a lie, by little or by much
        best = subject.optimum
        more = best + 1, best + 2, 2 * best + 1, best + max(1, best // 10), 10**12
        bound = rng.choice(more)
    names = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        name = rng.choice(sorted(CHANGES))
        names.append(name)
        certificate = CHANGES[name](rng, certificate, bound)
    return names[0], document(bound, certificate)


def _places(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values within a tree."""
    inner: Any = ()
    if isinstance(tree, dict):
        inner = tree.items()
    elif isinstance(tree, list):
        inner = enumerate(tree)
    for key, value in inner:
        yield (*at, key)
        yield from _places(value, (*at, key))


def _holder(tree: Any, place: tuple[Any, ...]) -> Any:
    for key in place[:-1]:
        tree = tree[key]
    return tree


def _pick(rng: Random, tree: Any, wanted: Callable[[Any], bool]) -> Any:
    """(holder, key) of a random value within that is wanted; None without one."""
    fitting = []
    for place in _places(tree):
        holder = _holder(tree, place)
        if wanted(holder[place[-1]]):
            fitting.append((holder, place[-1]))
    return rng.choice(fitting) if fitting else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _replaced(rng: Random, tree: Any, bound: int) -> Any:
    if picked := _pick(rng, tree, _is_number):
        picked[0][picked[1]] = rng.choice(NUMBERS)
    return tree


def _scaled(rng: Random, tree: Any, bound: int) -> Any:
    if picked := _pick(rng, tree, _is_number):
        picked[0][picked[1]] = _times(picked[0][picked[1]], rng.choice(FACTORS))
    return tree


def _times(value: int | float, factor: float) -> int | float:
    if isinstance(value, int):
        return int(value * Fraction(factor))
    return value * factor


def _stepped(rng: Random, tree: Any, bound: int) -> Any:
    if picked := _pick(rng, tree, _is_number):
        picked[0][picked[1]] += rng.choice([-1, 1])
    return tree


def _mistyped(rng: Random, tree: Any, bound: int) -> Any:
    if picked := _pick(rng, tree, lambda value: True):
        picked[0][picked[1]] = deepcopy(rng.choice(OTHERS))
    return tree


def _relisted(rng: Random, tree: Any, bound: int) -> Any:
    if picked := _pick(rng, tree, lambda value: isinstance(value, list)):
        rows = picked[0][picked[1]]
        how = rng.randrange(5)
        if how == 0 and rows:
            del rows[rng.randrange(len(rows))]
        elif how == 1 and rows:
            rows.insert(rng.randrange(len(rows)), deepcopy(rng.choice(rows)))
        elif how == 2:
            rng.shuffle(rows)
        elif how == 3:
            rows.clear()
        else:
            rows.append(deepcopy(rng.choice((0, 1e18, *rows))))
    return tree


def _unkeyed(rng: Random, tree: Any, bound: int) -> Any:
    if picked := _pick(rng, [tree], lambda value: isinstance(value, dict) and value):
        fields = picked[0][picked[1]]
        del fields[rng.choice(sorted(fields))]
    return tree


def _rekeyed(rng: Random, tree: Any, bound: int) -> Any:
    if picked := _pick(rng, [tree], lambda value: isinstance(value, dict)):
        fields = picked[0][picked[1]]
        names = ("at", "low", "kind", "prices", "split", "x")
        fields[rng.choice(names)] = deepcopy(rng.choice((*NUMBERS, *OTHERS, [1, 1])))
    return tree


def _grafted(rng: Random, tree: Any, bound: int) -> Any:
    """A part of the tree in the place of another."""
    nested = lambda value: isinstance(value, dict | list)  # noqa: E731
    if (one := _pick(rng, tree, nested)) and (two := _pick(rng, tree, nested)):
        one[0][one[1]] = json.loads(json.dumps(two[0][two[1]]))
    return tree


def _swapped(rng: Random, tree: Any, bound: int) -> Any:
    """The certificate of another instance."""
    return json.loads(json.dumps(rng.choice(subjects()).certificate))


def _raised(rng: Random, tree: Any, bound: int) -> Any:
    """What the certificate claims, raised together with the bound."""
    if "time_us" in tree:
        tree["time_us"] = max(0, int(bound) + rng.choice([-1, -1, 0, 1, 10**6]))
    return tree


def _priced(rng: Random, tree: Any, bound: int) -> Any:
    """One price, of a group or of all, made very large, or all scaled by one factor."""
    place, price = rng.randrange(6), rng.choice([0, 1, 1e3, 1e9, 1e15, 1e18])
    factor = rng.choice([None, 0.1, 0.999, 1.001, 2, 100])
    for holder in [h for h in _dicts(tree) if isinstance(h.get("prices"), list)]:
        prices = holder["prices"]
        for i, old in enumerate(prices):
            if factor is not None and _is_number(old):
                prices[i] = _times(old, factor)
        if factor is None and prices:
            whole = isinstance(prices[0], int)
            prices[place % len(prices)] = int(price) if whole else price
    return tree


def _without_parts(rng: Random, tree: Any, bound: int) -> Any:
    """A box is not there, or a division makes it empty."""
    if picked := _pick(rng, tree, lambda v: isinstance(v, dict) and "split" in v):
        case = picked[0][picked[1]]
        if rng.random() < 0.5:
            case[rng.choice(["low", "high"])] = None
        else:
            case["at"] = rng.choice([0, -1, -5, 10**18, 99, 0.5])
    elif picked := _pick(rng, tree, lambda v: isinstance(v, dict) and "prices" in v):
        prices = picked[0][picked[1]]
        of = rng.choice(["sync", "count", "replicas", "slowest", "host"])
        at = rng.choice([0, 1, 10**9, -2])
        box = {"split": of, "at": at, "low": prices, "high": None}
        picked[0][picked[1]] = {**box, "kind": 0} if of == "host" else box
    return tree


def _dicts(tree: Any) -> Iterator[Tree]:
    if isinstance(tree, dict):
        yield tree
    inner = tree.values() if isinstance(tree, dict) else tree
    for value in inner if isinstance(tree, dict | list) else ():
        yield from _dicts(value)


Change = Callable[[Random, Any, int], Any]
CHANGES: dict[str, Change] = {
    "number replaced": _replaced,
    "number scaled": _scaled,
    "number stepped": _stepped,
    "type changed": _mistyped,
    "list changed": _relisted,
    "key dropped": _unkeyed,
    "key added": _rekeyed,
    "part grafted": _grafted,
    "certificate swapped": _swapped,
    "claims raised": _raised,
    "prices changed": _priced,
    "parts dropped": _without_parts,
}
