"""Derives a bound on device grouping again from its certificate.

Shares no code with the method that left the certificate: prices are tested, and
searches repeated, as integer programs on a back end, over the problem's own data.

A claim says: no `least_groups` groups all have S / (K + P - 1) above `ratio`, K being
`micro_batches`; so any number of groups from there to `most_groups` has an objective
of at most  most_groups x K x ratio  (two groups merged are at least as good as the
worse of them, and K does not fall). How it is shown:

    totals   strength or memory of all devices do not suffice;
    prices   a price a device, such that so many groups, each the cheapest possible,
             cost more than all devices together;
    search   the program over all possible groups has no integer solution.

A group is possible if it is above the ratio, reaches the memory floor, and leaves the
other groups enough of both.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from .. import registry
from ..modelling import Limits
from ..problems import Objective
from ..problems.device_grouping import Data
from ..result import Status

_MOST_GROUPS = 200_000


def recheck(
    data: Data, certificate: dict[str, Any], bound: Objective, backend: str = "cpsat"
) -> list[str]:
    """What is missing for `bound` to be proved; empty when it holds.

    `BackendMissing` where the back end is not installed.
    """
    missing, wanted = [], []
    claims = certificate.get("claims", [])
    for groups in _possible(data):
        if _closed_form(data, groups) <= bound:
            continue
        covering = [c for c in claims if _value(data, c, groups, bound)]
        if not covering:
            missing.append(f"{groups} groups: nothing says that they stay at {bound}")
        elif covering[0] not in wanted:
            wanted.append(covering[0])
    for claim in wanted:
        if reason := _doubt(data, claim, backend):
            least, most = claim["least_groups"], claim["most_groups"]
            missing.append(f"{least} to {most} groups, by {claim['by']}: {reason}")
    return missing


def _possible(data: Data) -> range:
    """Numbers of groups that batch, memory and number of devices allow."""
    if data.groups is not None:
        return range(data.groups, data.groups + 1)
    most = data.devices
    if data.minimum_memory_mib:
        memory = sum(gpu.count * gpu.memory_mib for gpu in data.gpus)
        most = min(most, memory // data.minimum_memory_mib)
    if data.global_batch_micro_batches is not None:
        most = min(most, data.global_batch_micro_batches)
    return range(1, most + 1)


def _closed_form(data: Data, groups: int) -> Fraction:
    k = data.micro_batches_of(groups)
    strength = sum(gpu.count * gpu.gflops for gpu in data.gpus)
    return Fraction(groups * k * strength, data.devices + groups * (k - 1))


def _value(data: Data, claim: dict[str, Any], groups: int, bound: Objective) -> bool:
    """Whether the claim, if true, keeps `groups` groups at or below the bound."""
    least, most, k = claim["least_groups"], claim["most_groups"], claim["micro_batches"]
    if not least <= groups <= most or k != data.micro_batches_of(least):
        return False
    return bool(most * k * Fraction(*claim["ratio"]) <= bound)


def _doubt(data: Data, claim: dict[str, Any], backend: str) -> str | None:
    """Why a claim is not shown, None when it is."""
    program = _Groups(data, claim["least_groups"], claim["micro_batches"], claim)
    if program.spare < 0 or program.spare_mib < 0:
        return None
    if claim["by"] == "prices":
        return program.doubt_prices(claim["prices"], backend)
    if claim["by"] == "search":
        return program.doubt_search(backend)
    return "the totals suffice"


class _Groups:
    """Groups above a ratio, as  sum weight x >= price  and  sum memory x >= floor."""

    def __init__(self, data: Data, groups: int, k: int, claim: dict[str, Any]) -> None:
        num, den = claim["ratio"]
        self.number = groups
        # One kind a pair of strength and memory, strongest first, as in the prices.
        kinds = sorted({(g.gflops, g.memory_mib) for g in data.gpus}, reverse=True)
        self.count = [
            sum(g.count for g in data.gpus if (g.gflops, g.memory_mib) == kind)
            for kind in kinds
        ]
        self.memory = [memory for _, memory in kinds]
        self.weight = [den * gflops - num for gflops, _ in kinds]
        self.price, self.floor = num * (k - 1) + 1, max(1, data.minimum_memory_mib)
        self.spare = self._of(self.weight, self.count) - groups * self.price
        self.spare_mib = self._of(self.memory, self.count) - groups * self.floor

    @staticmethod
    def _of(values: list[int], counts: list[int]) -> int:
        return sum(v * c for v, c in zip(values, counts, strict=True))

    def doubt_prices(self, prices: list[int], backend: str) -> str | None:
        """Find the cheapest group; so many of them must cost more than there is."""
        model = registry.entry("backends", backend).backend("cheapest group")
        take = [model.integer(f"take[{i}]", 0, c) for i, c in enumerate(self.count)]

        def total(values: list[int]) -> Any:
            return model.total(v * x for v, x in zip(values, take, strict=True))

        model.add("strong", 0, total(self.weight) >= self.price)
        model.add("modest", 0, total(self.weight) <= self.price + self.spare)
        model.add("fits", 0, total(self.memory) >= self.floor)
        model.add("leaves", 0, total(self.memory) <= self.floor + self.spare_mib)
        model.minimise(total(prices))
        answer = model.solve(Limits(), lambda incumbent, bound: None)
        if answer.status is Status.INFEASIBLE:
            return None
        if answer.status is not Status.OPTIMAL:
            return f"the back end ended with {answer.status}"
        cheapest = sum(
            p * round(answer.value(x)) for p, x in zip(prices, take, strict=True)
        )
        worth = self._of(prices, self.count)
        if self.number * cheapest > worth:
            return None
        return f"groups cost {self.number} x {cheapest}, the devices are worth {worth}"

    def doubt_search(self, backend: str) -> str | None:
        """Solve the program over all possible groups."""
        found: list[tuple[int, ...]] = []
        for group in self._all(0, (), self.spare + self.price):
            found.append(group)
            if len(found) > _MOST_GROUPS:
                return f"more than {_MOST_GROUPS} groups are possible"
        model = registry.entry("backends", backend).backend("group counts")
        use = [model.integer(f"use[{n}]", 0, self.number) for n in range(len(found))]
        model.add("number", 0, model.total(use) == self.number)
        for i, count in enumerate(self.count):
            taken = model.total(
                group[i] * n for group, n in zip(found, use, strict=True)
            )
            model.add("every_device_once", i, taken == count)
        answer = model.solve(Limits(), lambda incumbent, bound: None)
        if answer.status is Status.INFEASIBLE:
            return None
        return f"the back end ended with {answer.status}"

    def _all(
        self, i: int, taken: tuple[int, ...], most: int
    ) -> Iterator[tuple[int, ...]]:
        """Groups, kind by kind; none is worth more than its price and all spare."""
        if i == len(self.count):
            worth, memory = (
                self._of(self.weight, [*taken]),
                self._of(self.memory, [*taken]),
            )
            if self.price <= worth <= most and (
                self.floor <= memory <= self.floor + self.spare_mib
            ):
                yield taken
            return
        worth = self._of(self.weight[:i], [*taken])
        after = list(zip(self.weight[i + 1 :], self.count[i + 1 :], strict=True))
        gain = sum(max(0, w) * c for w, c in after)
        loss = sum(min(0, w) * c for w, c in after)
        for n in range(self.count[i] + 1):
            now = worth + n * self.weight[i]
            if now + gain >= self.price and now + loss <= most:
                yield from self._all(i + 1, (*taken, n), most)
