"""Times of what crosses links: activations between stages, gradients of a layer.

hop  = 2 min over x, y of (alpha_xy + e b S H / beta_xy
                           + (t_Y - 1) (alpha_Y + e b S H / (t_Y beta_Y)))
sync = 2 max over r of sum over r' != r of (alpha_rr' + g p / (t_min n beta_rr'))
or, `sync: bottleneck`,  2 (n - 1) / n * g p / t_min / lowest beta

e and g are 2 bytes, or those of `precision`. With ZeRO-3 the 2 passes of sync are 3:
weights are gathered for the forward pass and for the backward pass, once an iteration.

Where a node has a adapters, beta between nodes is what all of them carry together:

hop    t GPUs reach min(t, a) / a of it. Under `hop_parts: whole` each of the t GPUs of
       the receiver is sent all activations, t times as much in all, and none gathers.
sync   the t_min rings of a layer run at once, d members of each on the node: a ring
       reaches min(a, t_min d) / (a t_min) of it.

The end of a link that reaches less decides. Where a node has no adapters told, a hop
and each ring has all of beta: adapters only ever make what crosses nodes slower. Links
whose directions differ: a hop goes one way and the other, a ring waits for the slower.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from ..schema import CostSettings
from .compute import LinkRate

Link = Callable[[str, str], LinkRate]


def hop_s(
    activation: int, across: LinkRate, within: LinkRate | None, t: int
) -> Fraction:
    """Seconds of one micro-batch from a stage to the next, both directions.

    `activation` is e b S H bytes; `across` joins the stages, `within` the receiver's
    `t` GPUs, which gather the parts (needed when t > 1; None where none gathers).
    """
    latency, bandwidth = across
    one_way = latency + activation / bandwidth
    if within is not None and t > 1:
        one_way += (t - 1) * (within[0] + activation / (t * within[1]))
    return 2 * one_way


def hop_slowdown(adapters: int | None, t: int, copies: int) -> Fraction:
    """How many times as long `t` GPUs need as all adapters of their node for a hop.

    `copies` is how often they send or are sent the activations: once in all, or once
    for each GPU of the receiver.
    """
    if adapters is None:
        return Fraction(1)
    return copies * Fraction(adapters, min(t, adapters))


def ring_slowdown(adapters: int | None, t: int, members: int) -> Fraction:
    """The same for one of `t` rings at once, with so many members on the node."""
    if adapters is None:
        return Fraction(1)
    return Fraction(adapters * t, min(adapters, t * members))


def sync_s(
    parameters: int,
    holders: Iterable[tuple[str, int]],
    link: Link,
    adapters: Mapping[str, int | None],
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
    slower = {a: ring_slowdown(adapters[a], t_min, d) for a, d in nodes.items()}

    def rate(a: str, b: str) -> LinkRate:
        latency, bandwidth = link(a, b)
        return latency, bandwidth if a == b else bandwidth / max(slower[a], slower[b])

    if costs.sync == "bottleneck":
        lowest = min(
            rate(a, b)[1] for a in nodes for b in nodes if a != b or nodes[a] > 1
        )
        return Fraction(costs.sync_passes * (n - 1) * volume, n * t_min) / lowest
    chunk = Fraction(volume, t_min * n)
    slowest = Fraction(0)
    for a in nodes:
        total = Fraction(0)
        for b, count in nodes.items():
            peers = count - (a == b)
            if peers:
                latency, bandwidth = rate(a, b)
                total += peers * (latency + chunk / bandwidth)
        slowest = max(slowest, total)
    return costs.sync_passes * slowest
