"""Models of any back end that tests solve."""

from random import Random
from typing import Any


def quiet(incumbent: float | None, bound: float | None) -> None:
    """Progress that nobody looks at."""


def knapsack(model: Any, seed: int, items: int, rows: int) -> list[Any]:
    """A random knapsack of several rows; large ones take long to prove."""
    random = Random(seed)
    take = [model.binary(f"take[{i}]") for i in range(items)]
    for row in range(rows):
        weights = [random.randint(20, 99) for _ in take]
        weight = model.total(w * x for w, x in zip(weights, take, strict=True))
        model.add("room", row, weight <= sum(weights) // 2)
    worth = [random.randint(20, 99) for _ in take]
    model.maximise(model.total(w * x for w, x in zip(worth, take, strict=True)))
    return take
