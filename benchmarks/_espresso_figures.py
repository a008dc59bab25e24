"""Espresso's Fig. 3, 4 and 10b: where stages go, when they work, planning by layers."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise, permutations
from time import process_time
from typing import Any

from hetopt.explaining.timeline import Timeline, Times, run_passes
from hetopt.files import load_instance
from hetopt.planners.espresso import (
    Pruning,
    Stages,
    Stock,
    allocation_of,
    explore,
)
from hetopt.planners.whale_plus import balance
from hetopt.problems import provisioning as judge
from hetopt.problems.provisioning import Data
from hetopt.schema import Instance

Row = dict[str, Any]
LETTERS = {"A6000": "A", "A30": "B", "RTX3090": "C", "A4000": "D"}
DEGREE = 2  # data parallelism of section II-C
# Section II-C: the sequence of its optimal plan, and that of its inadequate one.
BEST, INADEQUATE = "DCBA", "BADC"
TIMES = (0.5, 1, 1.5, 2, 3, 4)  # the layers of a job, for Fig. 10b


def llama_18b() -> Data:
    """LLaMA-1.8B on all offers: 32 layers of hidden size 2048, a batch of 32.

    The paper gives the batch and 4096 tokens, and no shape: this one has 1.75 billion
    parameters with its embeddings. 4 micro-batches, as for the other jobs.
    """
    document = json.loads(load_instance("espresso/llama-1.3b").model_dump_json())
    document["name"] = "espresso/llama-1.8b"
    document["model"] |= {"name": "llama-1.8b", "layers": 32, "hidden": 2048}
    document["workload"] |= {"sequence_length": 4096, "global_batch": 32}
    document["requirements"] = {}
    document["search"] |= {"data_parallel": [DEGREE]}
    return judge.data(Instance.model_validate_json(json.dumps(document)))


@dataclass(frozen=True)
class Placed:
    """A pipeline and its iteration, as the judge has it."""

    stages: Stages
    iteration_us: int

    @property
    def layers(self) -> str:
        """Of its stages."""
        return ",".join(str(layers) for _, layers in self.stages)


class Placements:
    """LLaMA-1.8B on sequences of GPUs, each type once."""

    def __init__(self, data: Data) -> None:
        self.data, self.stock = data, Stock.of(data, DEGREE)
        kinds = self.stock.kinds
        self.number = {LETTERS[kind.gpu]: t for t, kind in enumerate(kinds)}

    def placed(self, stages: Stages) -> Placed:
        """What the judge says of a pipeline that fits."""
        found = judge.evaluate(self.data, self.stock.plan(stages))
        if not found.valid:
            raise SystemExit(f"a plan breaks rules: {found.violations}")
        return Placed(stages, int(found.parts["iteration_us"]))

    def whale(self, order: Sequence[int]) -> Placed | None:
        """Layers by compute as far as memory goes, on stages in this order."""
        counts = allocation_of(self.stock, tuple((t, 0) for t in order))
        stages = balance(self.stock, counts, order)
        return None if stages is None else self.placed(stages)

    def optimal(self, order: Sequence[int]) -> Placed | None:
        """The best of all partitions that fit, as the paper's exhaustive search."""
        layers, k = self.stock.layers, len(order)
        rooms = [self.stock.room(t, s, k) for s, t in enumerate(order)]
        best: tuple[int, Stages] | None = None
        for cuts in combinations(range(1, layers), k - 1):
            given = [b - a for a, b in pairwise((0, *cuts, layers))]
            if any(x > room for x, room in zip(given, rooms, strict=True)):
                continue
            stages = tuple(zip(order, given, strict=True))
            found = self.stock.iteration_us(stages), stages
            best = found if best is None else min(best, found)
        return None if best is None else self.placed(best[1])

    def both(self, letters: str) -> tuple[Placed, Placed] | None:
        """Whale's partition of a sequence, and the best; None where none fits."""
        order = [self.number[letter] for letter in letters]
        whale, optimal = self.whale(order), self.optimal(order)
        return None if whale is None or optimal is None else (whale, optimal)

    def sequences(self, stages: int) -> dict[str, tuple[Placed, Placed]]:
        """Every order of so many types on which LLaMA-1.8B fits, one stage each."""
        words = ("".join(found) for found in permutations(self.number, stages))
        every = {word: self.both(word) for word in words}
        return {word: pair for word, pair in every.items() if pair is not None}

    def by_memory(self, sequences: Iterable[str]) -> str:
        """Whale's order: the largest memory first."""
        memory = [kind.memory_mib for kind in self.stock.kinds]
        return max(sequences, key=lambda word: [memory[self.number[x]] for x in word])


def figure_3(limit_s: float) -> Iterator[Row]:
    """Fig. 3: an iteration of LLaMA-1.8B by sequence of GPUs and partition."""
    placements = Placements(llama_18b())
    for count in (4, 3):
        found = placements.sequences(count)
        times = {word: optimal.iteration_us for word, (_, optimal) in found.items()}
        chosen = {min(times, key=times.__getitem__): "best"}
        chosen[max(times, key=times.__getitem__)] = "worst"
        inadequate = None
        if count == len(BEST):
            chosen |= {BEST: "the paper's optimal", INADEQUATE: "its inadequate"}
            inadequate = found[INADEQUATE][0]
        for word in sorted(chosen, key=times.__getitem__):
            whale, optimal = found[word]
            better = sum(us < optimal.iteration_us for us in times.values())
            yield {
                "stages": count,
                "sequence": word,
                "which": chosen[word],
                "faster ones": f"{better} of {len(times) - 1}",
                "Whale's layers": whale.layers,
                "Whale, s": whale.iteration_us / 1e6,
                "optimal layers": optimal.layers,
                "optimal, s": optimal.iteration_us / 1e6,
                "saved, %": saved(optimal, whale),
                "saved over Whale's BADC, %": inadequate and saved(optimal, inadequate),
            }
        every = [saved(optimal, whale) for whale, optimal in found.values()]
        yield {
            "stages": count,
            "sequence": f"all {len(found)}",
            "saved, %": f"{min(every):.1f} to {max(every):.1f}",
        }


def saved(plan: Placed, other: Placed) -> float:
    """How much shorter an iteration is than another, in %."""
    return 100 * (1 - plan.iteration_us / other.iteration_us)


def figure_4(limit_s: float) -> Iterator[Row]:
    """Fig. 4: when the stages of Whale's and of the optimal plan work and wait."""
    placements = Placements(llama_18b())
    found = placements.sequences(len(LETTERS))
    first = placements.by_memory(found)
    whale, optimal = found[first][0], found[BEST][1]
    least_us = min(best.iteration_us for _, best in found.values())
    for name, plan in ((f"Whale, {first}", whale), (f"optimal, {BEST}", optimal)):
        yield from ({"plan": name, **row} for row in timeline(placements.stock, plan))
        yield {
            "plan": name,
            "stage": "judged",
            "simulated end, s": plan.iteration_us / 1e6,
            "longer than the best of all, %": 100 * (plan.iteration_us / least_us - 1),
        }


def timeline(stock: Stock, plan: Placed) -> Iterator[Row]:
    """Stage by stage, 1F1B event by event, the gradients behind the last pass."""
    kinds = [(stock.kinds[t], layers) for t, layers in plan.stages]
    line = events(stock, plan.stages)
    ends = [0.0] * len(kinds)
    for one in line.passes:
        ends[one.stage] = max(ends[one.stage], float(one.end_us))
    for j, (kind, layers) in enumerate(kinds):
        sync_us = layers * kind.sync_us
        yield {
            "stage": f"{LETTERS[kind.gpu]}, {layers} layers",
            "a micro-batch, s": layers * kind.layer_us / 1e6,
            "last pass ends, s": ends[j] / 1e6,
            "idle until then, s": ends[j] / 1e6
            - stock.micro_batches * layers * kind.layer_us / 1e6,
            "gradients, s": sync_us / 1e6,
            "simulated end, s": (ends[j] + sync_us) / 1e6,
        }


def events(stock: Stock, stages: Stages) -> Timeline:
    """The simulated pipeline; its hops take no time, as in the paper's Eq. 8."""
    times = []
    for t, layers in stages:
        kind = stock.kinds[t]
        forward = Fraction(layers * (kind.layer_us - kind.backward_us))
        times.append(Times(forward, Fraction(layers * kind.backward_us)))
    return run_passes(times, stock.micro_batches, "1f1b")


def deeper(job: str, times: float) -> Data:
    """A job with `times` as many layers, and as many times its deadline."""
    document = json.loads(load_instance(f"espresso/{job}").model_dump_json())
    document["name"] += f", {times:g} times the layers"
    document["model"]["layers"] = round(times * document["model"]["layers"])
    document["requirements"]["deadline_s"] *= times
    return judge.data(Instance.model_validate_json(json.dumps(document)))


def figure_10b(limit_s: float) -> Iterator[Row]:
    """Fig. 10b: planning by the number of layers, on 56 GPUs."""
    for job in ("llama-1.3b", "llama-3b", "llama-7b", "vit"):
        for times in TIMES:
            data = deeper(job, times)
            begun = process_time()
            search = explore(data, Pruning())
            took = process_time() - begun
            counters = search.counters
            yield {
                "job": job,
                "layers": data.layers,
                "deadline, s": data.deadline_s,
                "trees": counters.trees,
                "opened": counters.opened,
                "placed": counters.placed,
                "CPU, s": took,
                "plan": search.plan is not None,
            }
