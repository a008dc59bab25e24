"""Can a claim be true: "3000 tokens/s on this box" beside what no plan can beat.

A claim is of the speed of training: tokens or samples a second, of all GPUs or of one,
seconds of an iteration, tokens in some time, a share of the peak (MFU), TFLOP/s of a
GPU. It is refuted by the bound of an instance's iteration time: at once where
arithmetic tells, else after some search. A plan that is as fast shows that the claim
can be true, of the model of costs at least.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from ..bounds.training_plan import training_plan_bound
from ..costs import CostTable
from ..errors import InstanceError, quoted
from ..problems.training_plan import support
from ..result import Bound, Result, Status
from ..schema import Instance, exact
from ..text import units
from ..text.documents import Document
from . import planning
from .calling import AnyInstance, AnyLimits, AnyProgress, limits_of, public
from .feasibility import with_context
from .judging import load
from .starts import known_of

_EXAMPLES = (
    "3000 tokens/s, 800 tokens/s/GPU, 2.5 samples/s, 1.2 s, 10B tokens in 2 days or "
    "45% MFU"
)
_PER_GPU = re.compile(r"( *(/|per|a|each) *gpu)$", re.IGNORECASE)
_KINDS = {
    "tokens": r"(tokens?|tok)",
    "samples": r"(samples?|sequences?|seqs?)",
    "tflops": r"(tflops?|tflop)",
}
_PER_SECOND = r" *(/ *s(ec(ond)?)?|ps| per second| a second)"
_MFU = re.compile(r"([0-9]+(?:\.[0-9]+)?) *% *(mfu|of (the )?peak)?", re.IGNORECASE)
_RUN = re.compile(r"(.+?) *(?:tokens?|tok) +(?:in|within) +(.+)", re.IGNORECASE)
_RUN_FOR = re.compile(r"(.+?) +for +(.+?) *(?:tokens?|tok)", re.IGNORECASE)
_MOST = 60  # characters of a claim


class Truth(StrEnum):
    """The verdict on a claim."""

    IMPOSSIBLE = "impossible"  # beyond the peak of the cards, whatever the model says
    REFUTED = "refuted"  # no plan is as fast, which is proved of the model of costs
    POSSIBLE = "possible"  # a plan is as fast
    OPEN = "open"  # no plan known is, and no proof that none is


@dataclass(frozen=True)
class Claim:
    """A claim says how fast an instance is to train, and holds what is known of it.

    `claimed_us` is the iteration that the claim comes to, `bound` what no plan is
    faster than, `result` the fastest plan that was looked for. `beyond_error` says
    whether the claim is refuted even where runs are as much faster than predicted as
    four of five published ones are at the most; None where times are not calibrated.
    """

    instance: str
    text: str
    claimed_us: Fraction
    truth: Truth
    bound: Bound
    mfu: float | None
    most_tokens_per_second: float
    tokens_per_second: float | None
    claimed_tokens_per_second: float
    beyond_error: bool | None
    result: Result | None = field(default=None, repr=False)

    def to_json(self) -> Document:
        """The document of the command line; absent is None."""
        plan = None if self.result is None else self.result.plan
        return {
            "instance": self.instance,
            "claim": self.text,
            "truth": self.truth.value,
            "claimed_us": float(self.claimed_us),
            "claimed_tokens_per_second": self.claimed_tokens_per_second,
            "claimed_mfu": self.mfu,
            "bound_us": int(self.bound.value),
            "bound_source": self.bound.source,
            "most_tokens_per_second": self.most_tokens_per_second,
            "best_known_us": None if self.result is None else self.result.objective,
            "tokens_per_second": self.tokens_per_second,
            "beyond_error": self.beyond_error,
            "plan": None if plan is None else plan.model_dump(mode="json"),
        }


@public
def claim(
    instance: AnyInstance,
    text: str,
    *,
    runs_on: str | None = None,
    known: bool = True,
    limits: AnyLimits = 20,
    progress: AnyProgress = None,
) -> Claim:
    """Say whether a claim about the speed of an instance can be true.

    The claim is a text such as `3000 tokens/s`, `800 tokens/s/GPU`, `2.5 samples/s`,
    `1.2 s` (of an iteration), `10B tokens in 2 days`, `45% MFU` or `400 TFLOP/s/GPU`.
    What the cheap bound refutes takes no time, nor what a plan shows that is known
    beforehand, as those of `plan` are; else plans and better bounds are looked for
    within the limits. With `known` false they start from nothing. Raises
    `InstanceError` for a claim that cannot be read.
    """
    data = load(instance)
    if runs_on is not None:
        data = data.on(runs_on)
    support.require(data)
    asked = limits_of(limits)
    table = CostTable(data)
    claimed_us = iteration_of(data, table, text)
    needed = table.needed_flops_per_sample * data.workload.global_batch
    mfu = Fraction(needed) / (claimed_us * table.peak_flops_per_s / 10**6)
    bound, result = training_plan_bound(data), None
    truth = Truth.OPEN
    beforehand = known_of(instance, data, library=known)
    if (proved := beforehand.bound(data)) and proved.value > bound.value:
        bound = proved
    least = Fraction(_least_flops(data, table)) * data.workload.global_batch
    if least > claimed_us * table.peak_flops_per_s / 10**6:
        truth = Truth.IMPOSSIBLE
    elif bound.value > claimed_us:
        truth = Truth.REFUTED
    elif (starts := beforehand.starts(data)) and starts[0].objective <= claimed_us:
        truth, result = Truth.POSSIBLE, starts[0].result(data)
    else:
        result = planning.plan(data, start=beforehand, limits=asked, progress=progress)
        if result.bound is not None and result.bound.value > bound.value:
            bound = result.bound
        if result.objective is not None and result.objective <= claimed_us:
            truth = Truth.POSSIBLE
        elif result.status is Status.INFEASIBLE or bound.value > claimed_us:
            truth = Truth.REFUTED
    tokens = data.workload.global_batch * data.workload.sequence_length
    found_us = None if result is None else result.objective
    return Claim(
        instance=data.name,
        text=text.strip(),
        claimed_us=claimed_us,
        truth=truth,
        bound=bound,
        mfu=float(mfu),
        most_tokens_per_second=float(tokens * 10**6 / Fraction(bound.value))
        if bound.value
        else float("inf"),
        tokens_per_second=float(tokens * 10**6 / found_us) if found_us else None,
        claimed_tokens_per_second=float(tokens * 10**6 / claimed_us),
        beyond_error=_beyond_error(data, bound, claimed_us),
        result=result,
    )


def iteration_of(data: Instance, table: CostTable, text: str) -> Fraction:
    """Return the us of an iteration that a claim comes to.

    `InstanceError` for a text that says no speed.
    """
    word = text.strip()
    if len(word) > _MOST:
        raise _unread(text)
    workload, gpus = data.workload, data.planned_cluster.gpu_count
    needed = Fraction(table.needed_flops_per_sample * workload.global_batch)
    if share := _MFU.fullmatch(word):
        rate = exact(float(share[1])) / 100 * table.peak_flops_per_s
        return _positive(text, needed / rate * 10**6 if rate else Fraction(0))
    bare = _PER_GPU.sub("", word)
    each = gpus if bare != word else 1
    amounts = {
        "tokens": Fraction(workload.global_batch * workload.sequence_length),
        "samples": Fraction(workload.global_batch),
        "tflops": needed / 10**12,
    }
    for kind, pattern in _KINDS.items():
        optional = "?" if kind == "tflops" else ""
        form = rf"(.+?) *{pattern}({_PER_SECOND}){optional}"
        if (found := re.fullmatch(form, bare, re.IGNORECASE)) is None:
            continue
        rate = _number(text, found[1]) * each
        return _positive(text, amounts[kind] / rate * 10**6 if rate else Fraction(0))
    if each > 1:
        raise _unread(text)
    if run := _RUN.fullmatch(word) or _RUN_FOR.fullmatch(word):
        told, took = run.groups() if run.re is _RUN else (run[2], run[1])
        rate = _number(text, told) / _seconds(text, took)
        return _positive(text, amounts["tokens"] / rate * 10**6 if rate else rate)
    seconds = re.sub(r" *(/|per|an|each) *iter(ation)?$|/it$", "", word)
    return _positive(text, _seconds(text, seconds) * 10**6)


def _least_flops(data: Instance, table: CostTable) -> Fraction:
    """Return the FLOPs of a sample that no program saves, masks counted in full.

    What grows with the square of the length is attention, of which a causal mask leaves
    one half, while the usual count, which MFU goes by, has all of it.
    """
    tokens = data.workload.sequence_length
    needed = Fraction(table.needed_flops_per_sample)
    twice = CostTable(with_context(data, 2 * tokens)).needed_flops_per_sample
    return needed - (twice - 2 * needed) / 4


def _number(text: str, word: str) -> Fraction:
    try:
        return units.parse(word, units.COUNT)
    except ValueError:
        raise _unread(text) from None


def _seconds(text: str, word: str) -> Fraction:
    try:
        seconds = units.parse_with_unit(word, units.SECONDS)
    except ValueError:
        raise _unread(text) from None
    return _positive(text, seconds)


def _positive(text: str, us: Fraction) -> Fraction:
    if us <= 0:
        raise _unread(text)
    return us


def _unread(text: str) -> InstanceError:
    return InstanceError(
        f"claim: found {quoted(text)}, expected a speed, as {_EXAMPLES}; write it so"
    )


def _beyond_error(data: Instance, bound: Bound, claimed_us: Fraction) -> bool | None:
    """Return whether a claim beats the bound, less the error of predictions."""
    calibration = data.workload.costs.compute.calibration
    if calibration is None:
        return None
    low_s, _ = calibration.interval_s(float(bound.value) / 10**6)
    return float(claimed_us) / 10**6 < low_s
