"""Steps of RL simulated token by token, to be held beside the judge's formula."""

from collections import Counter
from collections.abc import Callable
from itertools import count

from hetopt.costs.decoding import Engine


def alone_ns(engine: Engine, lengths: list[int]) -> int:
    """The time of answers all there at once, by continuous batching in their order."""
    waiting, running, ns = lengths[::-1], list[int](), 0
    while waiting or running:
        while waiting and len(running) < engine.at_once:
            running.append(waiting.pop())
            ns += engine.prompt_ns
        ns += engine.ns(1, len(running))
        running = [left - 1 for left in running if left > 1]
    return ns


def period_ns(
    engine: Engine,
    length: Callable[[], int],
    answers: int,
    behind_ns: int,
    sent_ns: int,
    staleness: int,
    steps: int,
) -> float:
    """The time of a step apart, on one engine, after a warm-up of half of the `steps`.

    Batch j may begin when the weights of batch j - 1 - staleness are there. The engine
    stops for new weights, and so does training while it sends them.
    """
    now, free = 0, 0
    sent: list[int] = []  # when the weights of each batch were there
    pauses: list[int] = []
    ready = Counter[int]()
    running: list[tuple[int, int]] = []
    batches = ((i // answers, length()) for i in count())  # and tokens of each answer
    head = next(batches)
    while len(sent) < steps:
        while len(running) < engine.at_once:
            needs = head[0] - 1 - staleness
            if needs >= 0 and (needs >= len(sent) or sent[needs] > now):
                break
            running.append(head)
            now += engine.prompt_ns
            head = next(batches)
        if pauses and pauses[0] <= now:
            pauses.pop(0)
            now += sent_ns
        if not running:
            now = max(now, sent[head[0] - 1 - staleness])
            continue
        now += engine.ns(1, len(running))
        ready.update(batch for batch, tokens in running if tokens == 1)
        running = [(batch, n - 1) for batch, n in running if n > 1]
        while ready[len(sent)] == answers:
            free = max(now, free) + behind_ns
            pauses.append(free)
            free += sent_ns
            sent.append(free)
    half = steps // 2
    return (sent[-1] - sent[half - 1]) / (steps - half)
