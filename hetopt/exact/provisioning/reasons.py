"""Why no provisioning meets what is asked, and what could be met instead."""

from collections.abc import Callable, Iterator

from ...problems.provisioning import MICRO, Data
from .goals import LONGEST, Cheapest, Fastest, us, usd
from .search import Search
from .tables import Degree

Check = Callable[[], None]


def why_none(data: Data, degrees: list[Degree], check: Check) -> Iterator[str]:
    """Yield reasons, the surest first; `data` is known to have no plan."""
    if data.other_than_machines:
        counts = ", ".join(map(str, data.other_than_machines))
        yield f"machines: no plan that meets the rest has others than {counts} of them"
        return
    if data.deadline_s is not None:
        yield f"deadline: no plan ends within {data.deadline_s} s"
    elif data.budget_usd is not None:
        yield f"budget: no plan costs {data.budget_usd} USD or less"
    fastest, cheapest = Fastest(None), Cheapest(LONGEST)
    Search(degrees, fastest, check).run()
    if fastest.best is None:
        quotas = ", ".join(f"{offer.gpu} {offer.quota}" for offer in data.offers)
        yield f"memory: no plan within the quotas ({quotas}) holds {data.layers} layers"
        return
    least_s = float(us(data, fastest.best.time) / MICRO)
    yield f"deadline: the least that any plan meets is {least_s:.6f} s"
    Search(degrees, cheapest, check).run()
    if cheapest.best is not None:
        least_usd = float(usd(data, cheapest.best.cost))
        yield f"budget: the cheapest plan costs {least_usd:.6f} USD"
