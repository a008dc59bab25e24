"""Why no provisioning meets what is asked, and what could be met instead."""

from collections.abc import Callable, Iterator

from ...problems.provisioning import MICRO, Data
from .goals import LONGEST, Cheapest, Fastest, us, usd
from .search import Search
from .tables import Degree

Check = Callable[[], None]


def why_none(data: Data, degrees: list[Degree], check: Check) -> Iterator[str]:
    """Reasons, the surest first; `data` is known to have no plan."""
    if data.other_than_machines:
        counts = ", ".join(map(str, data.other_than_machines))
        yield f"machines: no plan that meets the rest has others than {counts} of them"
        return
    yield _unmet_limit(data)
    fastest = _fastest(degrees, check)
    if fastest is None:
        yield _memory(data, degrees)
        return
    least_s = float(us(data, fastest) / MICRO)
    yield f"deadline: the least that any plan meets is {least_s:.6f} s"
    cheapest = Cheapest(LONGEST)
    Search(degrees, cheapest, check).run()
    if cheapest.best is not None:
        least_usd = float(usd(data, cheapest.best.cost))
        yield f"budget: the cheapest plan costs {least_usd:.6f} USD"
    if data.deadline_s is not None:
        yield from _binding_quotas(data, data.deadline_s, fastest, check)


def _unmet_limit(data: Data) -> str:
    if data.deadline_s is not None:
        return f"deadline: no plan ends within {data.deadline_s} s"
    if data.budget_usd is not None:
        return f"budget: no plan costs {data.budget_usd} USD or less"
    return "memory: no plan holds the model"


def _fastest(degrees: list[Degree], check: Check) -> int | None:
    goal = Fastest(None)
    Search(degrees, goal, check).run()
    return goal.best.time if goal.best else None


def _memory(data: Data, degrees: list[Degree]) -> str:
    """By how much the memory of all that may be rented is short."""
    most = max(map(_layers_held, degrees), default=0)
    stages = min(data.max_stages, data.layers)
    quotas = ", ".join(f"{offer.gpu} {offer.quota}" for offer in data.offers)
    if most >= data.layers:
        return (
            f"memory: no order of at most {stages} stages within the quotas ({quotas}) "
            f"holds {data.layers} layers with their micro-batches in flight"
        )
    return (
        f"memory: at most {stages} stages within the quotas ({quotas}) hold at most "
        f"{most} layers of {data.layers}"
    )


def _layers_held(degree: Degree) -> int:
    """No pipeline of the degree holds more layers: each type at its best positions."""
    each = [
        int(cap[q])
        for cap, quota in zip(degree.cap, degree.quota, strict=True)
        for q in range(1, int(quota) + 1)
    ]
    return sum(sorted(each, reverse=True)[: degree.stages])


def _binding_quotas(
    data: Data, deadline_s: float, fastest: int, check: Check
) -> Iterator[str]:
    """Quotas that, if one alone were lifted, would let a plan be faster."""
    degrees = [d for one in data.each for d in one.data_parallel]
    for index, offer in enumerate(data.offers):
        enough = max(degrees) * min(data.max_stages, data.layers)
        if offer.quota >= enough:
            continue
        offers = list(data.offers)
        offers[index] = offer.model_copy(update={"quota": enough})
        more = data.model_copy(update={"offers": tuple(offers)})
        lifted = _fastest(Degree.all_of(more), check)
        if lifted is not None and lifted < fastest:
            least_s = float(us(data, lifted) / MICRO)
            meets = "met" if least_s <= deadline_s else "still missed"
            yield (
                f"quota: {offer.gpu} binds at {offer.quota}: with {enough} of them "
                f"the least deadline is {least_s:.6f} s ({meets})"
            )
