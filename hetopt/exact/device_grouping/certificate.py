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

Where numbers are too large for a back end the possible groups are listed instead.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from heapq import heappop, heappush

from ... import entries
from ...modelling import Expression, Limits
from ...problems import Objective
from ...problems.device_grouping import Data
from ...result import Status
from ...solving.certificates import Claim, GroupingCertificate

_MOST_GROUPS = 200_000
_MOST_STEPS = 3_000_000  # of looking for groups that are possible
_MOST = 2**60  # of sums that a back end is given
_ENOUGH = 10  # complaints, after which nothing more is checked
_SOLVE_S = 120.0  # for one claim; what is not shown by then is not shown


def recheck(
    data: Data,
    certificate: GroupingCertificate,
    bound: Objective,
    backend: str = "cpsat",
) -> list[str]:
    """Return what is missing for `bound` to be proved; empty when it holds.

    `BackendMissing` where the back end is not installed.
    """
    missing: list[str] = []
    wanted: dict[Claim, None] = {}
    of_use = [claim for claim in certificate.claims if _reaches(data, claim, bound)]
    possible = _possible(data)
    for groups, claim in zip(possible, _covering(of_use, possible), strict=True):
        if _closed_form(data, groups) <= bound:
            continue
        if claim is not None:
            wanted[claim] = None
        elif len(missing) < _ENOUGH:
            missing.append(f"{groups} groups: nothing says that they stay at {bound}")
    for claim in wanted:
        if len(missing) >= _ENOUGH:
            break
        if reason := _doubt(data, claim, backend):
            least, most = claim.least_groups, claim.most_groups
            missing.append(f"{least} to {most} groups, by {claim.by}: {reason}")
    return missing


def _possible(data: Data) -> range:
    """Numbers of groups that batch, memory and number of devices allow."""
    most = data.devices
    if data.minimum_memory_mib:
        memory = sum(gpu.count * gpu.memory_mib for gpu in data.gpus)
        most = min(most, memory // data.minimum_memory_mib)
    if data.global_batch_micro_batches is not None:
        most = min(most, data.global_batch_micro_batches)
    if data.groups is not None:
        return range(data.groups, min(data.groups, most) + 1)
    return range(1, most + 1)


def _covering(claims: list[Claim], numbers: range) -> Iterator[Claim | None]:
    """For each of ascending numbers the first claim whose range holds it."""
    waiting = sorted(
        ((c.least_groups, place) for place, c in enumerate(claims)), reverse=True
    )
    begun: list[int] = []
    for number in numbers:
        while waiting and waiting[-1][0] <= number:
            heappush(begun, waiting.pop()[1])
        while begun and claims[begun[0]].most_groups < number:
            heappop(begun)
        yield claims[begun[0]] if begun else None


def _closed_form(data: Data, groups: int) -> Fraction:
    k = data.micro_batches_of(groups)
    strength = sum(gpu.count * gpu.gflops for gpu in data.gpus)
    return Fraction(groups * k * strength, data.devices + groups * (k - 1))


def _reaches(data: Data, claim: Claim, bound: Objective) -> bool:
    """Tell whether the claim, if true, keeps its groups at or below the bound."""
    k = claim.micro_batches
    if k != data.micro_batches_of(claim.least_groups):
        return False
    return claim.most_groups * k * Fraction(*claim.ratio) <= bound


def _doubt(data: Data, claim: Claim, backend: str) -> str | None:
    """Why a claim is not shown, None when it is."""
    program = _Groups(data, claim)
    if program.spare < 0 or program.spare_mib < 0:
        return None
    if claim.by == "prices":
        if (got := len(claim.prices)) != (want := len(program.count)):
            return f"{got} prices of {want} kinds of devices"
        return program.doubt_prices(claim.prices, backend)
    if claim.by == "search":
        return program.doubt_search(backend)
    return "the totals suffice"


class _Doubt(Exception):
    """Why something is not shown."""


class _Groups:
    """Groups above a ratio, as  sum weight x >= price  and  sum memory x >= floor."""

    def __init__(self, data: Data, claim: Claim) -> None:
        num, den = claim.ratio
        groups, k = claim.least_groups, claim.micro_batches
        self.number, self.steps = groups, 0
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
    def _of(values: Iterable[int], counts: Iterable[int]) -> int:
        return sum(v * c for v, c in zip(values, counts, strict=True))

    def doubt_prices(self, prices: tuple[int, ...], backend: str) -> str | None:
        """Find the cheapest group; so many of them must cost more than there is."""
        sums = (self.weight, self.memory, prices)
        largest = max(
            self._of(map(abs, values), self.count) + abs(self.price) for values in sums
        )
        try:
            group = (
                self._cheapest(prices, backend)
                if largest + self.spare < _MOST
                else self._cheapest_listed(prices)
            )
        except _Doubt as doubt:
            return str(doubt)
        if group is None:
            return None
        cheapest, worth = self._of(prices, group), self._of(prices, self.count)
        if self.number * cheapest > worth:
            return None
        return f"groups cost {self.number} x {cheapest}, the devices are worth {worth}"

    def _cheapest(self, prices: tuple[int, ...], backend: str) -> Sequence[int] | None:
        """The cheapest possible group, by a back end; None where there is none."""
        model = entries.backend(backend).backend("cheapest group")
        take = [model.integer(f"take[{i}]", 0, c) for i, c in enumerate(self.count)]

        def total(values: Iterable[int]) -> Expression:
            return model.total(v * x for v, x in zip(values, take, strict=True))

        model.add("strong", 0, total(self.weight) >= self.price)
        model.add("modest", 0, total(self.weight) <= self.price + self.spare)
        model.add("fits", 0, total(self.memory) >= self.floor)
        model.add("leaves", 0, total(self.memory) <= self.floor + self.spare_mib)
        model.minimise(total(prices))
        answer = model.solve(Limits(time_s=_SOLVE_S), lambda incumbent, bound: None)
        if answer.status is Status.INFEASIBLE:
            return None
        if answer.status is not Status.OPTIMAL or answer.value is None:
            raise _Doubt(f"the back end ended with {answer.status}")
        return [round(answer.value(x)) for x in take]

    def _cheapest_listed(self, prices: tuple[int, ...]) -> Sequence[int] | None:
        """Return the cheapest where numbers are too large for a back end."""
        found = self._all_listed()
        return min(found, key=lambda group: self._of(prices, group), default=None)

    def doubt_search(self, backend: str) -> str | None:
        """Solve the program over all possible groups."""
        try:
            found = self._all_listed()
        except _Doubt as doubt:
            return str(doubt)
        if not found:
            return None
        model = entries.backend(backend).backend("group counts")
        use = [
            model.integer(f"use[{n}]", 0, self._times(group))
            for n, group in enumerate(found)
        ]
        model.add("number", 0, model.total(use) == self.number)
        for i, count in enumerate(self.count):
            taken = model.total(
                group[i] * n for group, n in zip(found, use, strict=True)
            )
            model.add("every_device_once", i, taken == count)
        answer = model.solve(Limits(time_s=_SOLVE_S), lambda incumbent, bound: None)
        if answer.status is Status.INFEASIBLE:
            return None
        return f"the back end ended with {answer.status}"

    def _times(self, group: tuple[int, ...]) -> int:
        """How often the devices suffice for a group, at most."""
        return min(c // n for c, n in zip(self.count, group, strict=True) if n)

    def _all_listed(self) -> list[tuple[int, ...]]:
        """Every group that is possible; `_Doubt` where they are too many."""
        found: list[tuple[int, ...]] = []
        for group in self._all(0, (), self.spare + self.price):
            found.append(group)
            if len(found) > _MOST_GROUPS:
                raise _Doubt(f"more than {_MOST_GROUPS} groups are possible")
        if self.steps > _MOST_STEPS:
            raise _Doubt(f"groups were not all listed in {_MOST_STEPS} steps")
        return found

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
            self.steps += 1
            if self.steps > _MOST_STEPS:
                return
            now = worth + n * self.weight[i]
            if now + gain >= self.price and now + loss <= most:
                yield from self._all(i + 1, (*taken, n), most)
