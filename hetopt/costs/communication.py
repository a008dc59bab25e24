"""Times of what crosses links: activations between stages, gradients of a layer.

hop  = 2 min over x, y of (alpha_xy + e b S H / beta_xy
                           + (t_Y - 1) (alpha_Y + e b S H / (t_Y beta_Y)))
sync = 2 max over r of sum over r' != r of (alpha_rr' + g p / (t_min n beta_rr'))
or, `sync: bottleneck`,  2 (n - 1) / n * g p / t_min / lowest beta

e and g are 2 bytes, or those of `precision`. With ZeRO-3 the 2 passes of sync are 3:
weights are gathered for the forward pass and for the backward pass, once an iteration.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction

from ..schema import CostSettings
from .compute import LinkRate

Link = Callable[[str, str], LinkRate]


def hop_s(
    activation: int, across: LinkRate, within: LinkRate | None, t: int
) -> Fraction:
    """Seconds of one micro-batch from a stage to the next, both directions.

    `activation` is e b S H bytes; `across` joins the stages, `within` the receiver's
    `t` GPUs (needed when t > 1).
    """
    latency, bandwidth = across
    one_way = latency + activation / bandwidth
    if t > 1:
        assert within is not None
        one_way += (t - 1) * (within[0] + activation / (t * within[1]))
    return 2 * one_way


def sync_s(
    parameters: int,
    holders: Iterable[tuple[str, int]],
    link: Link,
    costs: CostSettings,
) -> Fraction:
    """Seconds to synchronise the gradients of `parameters` among `holders`.

    `holders` are (node, tensor-parallel degree) of each replica.
    """
    replicas = list(holders)
    n = len(replicas)
    if n < 2:
        return Fraction(0)
    t_min = min(t for _, t in replicas)
    nodes = Counter(node for node, _ in replicas)
    volume = costs.gradient_bytes * parameters
    if costs.sync == "bottleneck":
        lowest = min(
            link(a, b)[1] for a in nodes for b in nodes if a != b or nodes[a] > 1
        )
        return Fraction(costs.sync_passes * (n - 1) * volume, n * t_min) / lowest
    chunk = Fraction(volume, t_min * n)
    slowest = Fraction(0)
    for a in nodes:
        total = Fraction(0)
        for b, count in nodes.items():
            peers = count - (a == b)
            if peers:
                latency, bandwidth = link(a, b)
                total += peers * (latency + chunk / bandwidth)
        slowest = max(slowest, total)
    return costs.sync_passes * slowest
