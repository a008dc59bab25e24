"""The module says what files of a run ask for, and which settings to change."""

from ..api.measured import Footing
from ..formats.importing.asked import Asked
from ..formats.importing.changes import Advice, Assessment
from ..formats.importing.placing import Settings
from ..problems import Evaluation
from ..result import Bound
from . import words
from .sheet import Section, Table

_LAUNCHERS = ("nproc", "nnodes", "node-rank", "master-", "rdzv", "num-processes")
_MOST_VALUES, _MOST_OTHERS = 40, 12  # that are printed; the rest is counted


def read(asked: Asked, told: Settings | None) -> list[tuple[str, str]]:
    """Return what kind of files they are, and the values that were read of them."""
    pairs = [("found", f"{asked.what}: {asked.place}")]
    if told is not None:
        known = {k: v for k, v in told._asdict().items() if v is not None}
        listed = (f"{k.replace('_', ' ')} {v}" for k, v in known.items())
        pairs.append(("settings", ", ".join(listed)))
    shown = [
        f"{asked.spelled(name)} "
        f"{f'of {len(value)}' if isinstance(value, list) else value}".rstrip()
        for name, value in asked.values.items()
        if name in asked.written and not name.startswith(_LAUNCHERS)
    ]
    more = f", and {len(shown) - _MOST_VALUES} more" * (len(shown) > _MOST_VALUES)
    pairs.append(("read", ", ".join(shown[:_MOST_VALUES]) + more))
    if others := asked.unread:
        some = ", ".join(others[:_MOST_OTHERS])
        rest = f", and {len(others) - _MOST_OTHERS} more (--json has them)"
        pairs.append(("not read", some + rest * (len(others) > _MOST_OTHERS)))
    return pairs


def answer(
    found: Evaluation,
    bound: Bound | None,
    advised: Advice | None,
    measured: Footing | None = None,
    full_length: int | None = None,
) -> str:
    """Return what the run takes, beside the best plan, and what to change.

    `full_length` are the tokens of each sequence where real ones may be shorter.
    """
    told = (
        _verdict(found, bound, full_length)
        if measured is None
        else measurement(measured, found, full_length)
    )
    if advised is not None:
        told += f" {sentence(advised)}"
    return told


def _verdict(
    found: Evaluation, bound: Bound | None, full_length: int | None = None
) -> str:
    each = f" with sequences of {full_length:,} tokens each" if full_length else ""
    least = ""
    if bound is not None and bound.value:
        least = f"less than {words.amount(bound.value, 'us')} ({bound.source})"
    if not found.valid:
        what = "does not fit" if _lacks_memory(found) else "breaks rules"
        told = f"The run {what}{each}, according to the model"
        return f"{told}; no plan that fits takes {least}." if least else f"{told}."
    assert found.objective is not None
    told = f"The run takes {words.amount(found.objective, 'us')} per iteration{each}"
    if bound is not None and least:
        more = words.share(float(found.objective / bound.value - 1))
        told += f", at most {more} more than the best plan: no plan takes {least}"
    return told + "."


def measurement(
    told: Footing, found: Evaluation, full_length: int | None = None
) -> str:
    """Return what was measured, what is predicted of it and of the best plan."""
    seconds = told.measured.seconds
    text = f"Measured {words.duration(seconds)} per iteration ({told.measured.source})"
    if told.predicted_s is not None:
        expected = words.interval_of(told.parts)
        interval = f" ({expected})" if expected else ""
        text += f", predicted {words.duration(told.predicted_s)}{interval}"
    text += "."
    low, high = (told.parts.get(end) for end in ("low_s", "high_s"))
    if low is not None and high is not None and not low <= seconds <= high:
        text += (
            " That is outside the interval: compare the instance's cards, links and "
            "sequence length with those of the run."
        )
    if told.network is not None:
        text += f" With {told.network:.3g} GB/s between nodes it would take as long."
    if not found.valid:
        text += f" {_verdict(found, None, full_length)}"
        if _lacks_memory(found):
            shorter = " or its sequences are shorter" if full_length else ""
            text += f" It ran, so the model counts too much memory here{shorter}."
    bound_s, end, fast = told.bound_s or 0.0, told.bound_s or 0.0, ""
    if low is not None and told.predicted_s:
        end *= low / told.predicted_s
        fast = f", {words.duration(end)} at the fast end of the 80% interval"
    same = told.corrected(told.best_s)
    if told.best_s is not None and told.best_s == told.predicted_s:
        text += " No faster plan is known."
    elif told.best_s is not None and same is not None:
        less = words.share(1 - same / seconds)
        text += (
            f" The best plan known is predicted to take {words.duration(told.best_s)}, "
            f"that is {words.duration(same)} on the same footing ({less} less)."
        )
    if told.pessimism is not None:
        text += (
            f" The measurement is {words.share(told.pessimism)} below "
            f"{words.duration(bound_s)}{fast}, which no plan of the model beats: the "
            "model is pessimistic here, and its bound is proved for the model only."
        )
        if seconds < end:
            text += " It is more than the model is usually off by: please report it."
    elif bound_s and (on_same := told.corrected(bound_s)):
        text += (
            f" No plan takes less than {words.duration(bound_s)}{fast}, "
            f"{words.duration(on_same)} on the same footing."
        )
    return text


def rates(told: Footing) -> list[tuple[str, str]]:
    """Return the time and the MFU of a measured run."""
    shown = f"{words.duration(told.measured.seconds)} per iteration"
    return [("measured", shown + (f", MFU {told.mfu:.1%}" if told.mfu else ""))]


def _lacks_memory(found: Evaluation) -> bool:
    return any(broken.rule == "memory" for broken in found.violations)


def advice(found: Advice) -> list[Section]:
    """Return a row for each change."""
    if not found.changes:
        return []
    headings = ("change", "by itself", "with those above")
    rows = [
        (
            ", ".join(map(str, one.words))
            or f"{one.setting.replace('_', ' ')} {one.old} -> {one.new}",
            _time(one.alone),
            _time(one.so_far),
        )
        for one in found.changes
    ]
    table = Table.of(headings, rows, texts=("change",))
    return [Section("What to change", table=table)]


def sentence(found: Advice) -> str:
    """Return what to change, and what that brings; or that nothing is to be had."""
    tried = "1 combination of settings was tried"
    if found.looked_at != 1:
        tried = f"{found.looked_at:,} combinations of settings were tried"
    equal = ", all those with equal stages"
    looked = tried + (equal if found.is_whole else ", not all of them (--time-limit)")
    if not found.changes and not found.compared:
        return f"Other settings were not compared: {found.run.why}."
    if not found.changes and found.run.us is None:
        return (
            f"No change to the settings in its files makes the run fit: {looked}; "
            "`hetopt plan` also tries others, such as ZeRO 3."
        )
    if not found.changes and not found.is_whole:
        return (
            f"No faster settings were found: only {tried}; a longer --time-limit "
            "tries more."
        )
    if not found.changes:
        none = "no other settings are at least 0.5% faster"
        return f"Change nothing: {none}; {looked}."
    count = len(found.words)
    names = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    many = names[count - 2] if count - 2 < len(names) else count
    flags = "this one setting" if count == 1 else f"these {many} settings"
    listed = ", ".join(map(str, found.words))
    best = words.amount(found.best.us, "us")
    if found.run.us is None:
        return f"Change {flags}: {listed}. Then it fits, with {best} per iteration."
    assert found.best.us is not None
    less = words.share(1 - found.best.us / found.run.us)
    before = words.amount(found.run.us, "us")
    return (
        f"Change {flags}: {listed}. That is {before} -> {best} per iteration, {less} "
        f"less; {looked}."
    )


def _time(judged: Assessment) -> str:
    if judged.us is not None:
        return words.amount(judged.us, "us")
    return f"no: {judged.why}"
