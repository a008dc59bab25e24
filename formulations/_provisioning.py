"""Statements of provisioning share this: kinds of stages, memory, prices, requirements."""

from fractions import Fraction
from math import ceil, floor, gcd
from typing import NamedTuple

from hetopt.errors import Unsupported
from hetopt.problems.provisioning import Data, Offer
from hetopt.schema import exact

LARGEST = 2**62  # of sums in 64 bits
MICRO_USD_US = 3_600_000_000 * 10**6  # of an hour's us and a dollar's millionths


class Kind(NamedTuple):
    """One offer at one data-parallel degree; times of a layer in us."""

    offer: Offer
    both: int
    backward: int
    sync: int


def refuse_losses(data: Data) -> None:
    """Each loss makes every machine pay longer: a product of sums."""
    if lost := [offer.gpu for offer in data.offers if offer.losses_per_hour]:
        raise Unsupported(
            f"offer {lost[0]!r} has losses_per_hour, whose part of the time depends on all that is "
            "rented, which the statement cannot say: use the exact method"
        )


def kinds_of(data: Data) -> dict[tuple[str, int], Kind]:
    """Offers at the degrees that their quota allows, by name and degree."""
    found = {}
    for offer in data.offers:
        for d in data.data_parallel:
            times = offer.by_data_parallel[str(d)]
            both = times.forward_us + times.backward_us
            if d <= offer.quota:
                sync = times.sync_us if d > 1 else 0
                found[offer.gpu, d] = Kind(offer, both, times.backward_us, sync)
    return found


def positions(data: Data) -> int:
    """Return the most stages: of layers, and of d GPUs each."""
    (d,) = data.data_parallel
    stages = sum(min(offer.quota, offer.rentable) // d for offer in data.offers)
    return min(data.max_stages, data.layers, stages)


def rooms(data: Data) -> dict[tuple[int, str, int], int]:
    """Return the most layers that fit by position, offer and degree."""
    found = {}
    for e in range(positions(data)):
        held = min(data.micro_batches, e + 1)
        for (o, d), kind in kinds_of(data).items():
            need = kind.offer.layer_mib_at(d) + held * kind.offer.in_flight_mib
            if room := min(data.layers, kind.offer.memory_mib // need if need else data.layers):
                found[e, o, d] = room
    return found


def latest(data: Data) -> list[int]:
    """The longest iteration in us that meets the deadline, where there is one."""
    return [floor(exact(s) * 10**6 / data.iterations) for s in (data.deadline_s,) if s is not None]


def budget(data: Data) -> list[int]:
    """Return the most that `cost` may be, where there is a budget."""
    if data.budget_usd is None:
        return []
    units = floor(exact(data.budget_usd) * MICRO_USD_US / (unit(data) * data.iterations))
    if units > LARGEST:
        raise Unsupported(
            f"budget_usd is {data.budget_usd}, beyond the integers of a back end "
            "in the unit of the prices: use the exact method, or a smaller budget"
        )
    return [units]


def unit(data: Data) -> int:
    """The greatest common divisor of all prices, in millionths of USD an hour."""
    return gcd(*(offer.micro_usd_per_hour for offer in data.offers)) or 1


def bound_of(data: Data, value: Fraction) -> int | Fraction:
    """The least objective, USD or us, if the statement's integer is >= `value`."""
    least = max(0, ceil(value)) * data.iterations
    if data.minimises_time:
        return least
    return Fraction(least * unit(data), MICRO_USD_US)
