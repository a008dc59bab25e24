"""Numbers and names as people read them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from ..plans import Stage
from ..problems import Objective
from ..schema import Cluster
from ..text import numbers
from ..text.documents import Fields
from ..text.numbers import counted as counted
from ..text.numbers import spans as spans

NONE = "–"
# Units of long times: seconds of one, and of how many on they are used.
_LONG = (
    *(("years", 31_557_600, 2), ("days", 86_400, 2)),
    *(("h", 3_600, 1), ("min", 60, 10)),
)
_NAMED = 4  # open questions that a sentence names
_LEAST_MS = 1e-4  # seconds: shorter times are microseconds
# Names of large counts, as people write them.
_COUNTS = {"T": 10**12, "B": 10**9, "M": 10**6}


def plain(text: str) -> str:
    """The text without control characters, which could rewrite a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def cell(value: object) -> object:
    """A value for a cell of CSV, which no spreadsheet takes for a formula to run."""
    if not isinstance(value, str) or value[:1] not in ("=", "+", "-", "@"):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def unfinished(waiting: Sequence[str], *, complete: bool) -> str:
    """Return what Ctrl-C left open, to be put behind an answer; nothing if complete."""
    if complete:
        return ""
    if not waiting:
        return " (Interrupted.)"
    named, more = ", ".join(waiting[:_NAMED]), len(waiting) - _NAMED
    rest = f" and {more} more" if more > 0 else ""
    return f" (Interrupted; still open: {named}{rest}.)"


def amount(value: Objective | float | None, unit: str) -> str:
    """A value with its unit; times are shown in ms or s."""
    if value is None:
        return NONE
    if unit == "us":
        return duration(float(value) / 1e6)
    if isinstance(value, int):
        return f"{value:,} {unit}"
    return f"{number(float(value))} {unit}"


# What a bound says of every plan, by the unit of the objective.
_LIMITS = {
    "us": "no plan is faster than",
    "USD": "no plan is cheaper than",
    "GFLOP/s": "no plan has more than",
}


def limit(unit: str) -> str:
    """Return what a bound says, before its amount: `no plan is faster than`."""
    return _LIMITS.get(unit, "no plan is below")


def number(value: float) -> str:
    """Two decimals, or none from 1,000 on, or four digits of a small value."""
    decimals = 0 if abs(value) >= 1000 else 2
    return f"{value:,.{decimals}f}" if abs(value) >= 1 else f"{value:.4g}"


def duration(seconds: float | None) -> str:
    """Return a time in the unit that a person would choose: `9.72 days`, `6.23 s`.

    It has three to four significant digits.
    """
    if seconds is None:
        return NONE
    if seconds < 0:
        return f"-{duration(-seconds)}"
    for unit, size, least in _LONG:
        if seconds >= least * size:
            many = seconds / size
            decimals = 0 if many.is_integer() else (many < 10) + (many < 100)
            return f"{many:,.{decimals}f} {unit}"
    if seconds >= 100:
        return f"{seconds:,.1f} s"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if not seconds:
        return "0 s"
    if seconds >= _LEAST_MS:
        return f"{_digits(seconds * 1e3)} ms"
    return f"{_digits(seconds * 1e6)} µs"


def _digits(value: float) -> str:
    """Return three digits of a value, or four of one from 100 on."""
    decimals = 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{decimals}f}"


def tokens(count: int) -> str:
    """Return a number of tokens as people write it, `15T tokens`."""
    for unit, size in _COUNTS.items():
        if count >= size:
            return f"{count / size:g}{unit} tokens"
    return f"{count:,} tokens"


def interval(low_s: float | None, high_s: float | None) -> str:
    """`9.10-10.62 s`; with both units where they differ."""
    low, high = duration(low_s), duration(high_s)
    unit = high.rpartition(" ")[2]
    return f"{low.removesuffix(f' {unit}')}-{high}" if unit else f"{low}-{high}"


def interval_of(parts: Fields) -> str | None:
    """An interval of the judge's parts; None where times are not calibrated."""
    low = parts.get("low_s")
    return None if low is None else interval(low, parts["high_s"])


def share(value: float | None) -> str:
    """A fraction of one as a percentage."""
    return NONE if value is None else f"{value:.2%}"


def memory(mib: int | None) -> str:
    """MiB, as GiB where there are many."""
    return NONE if mib is None else numbers.memory(mib)


def loading(hosts: Sequence[tuple[str, int, int]]) -> str:
    """The host that has least of what it needs while weights are loaded."""
    name, need, room = max(hosts, key=lambda host: host[1] / max(1, host[2]))
    return f"host {name} needs {memory(need)}, has {memory(room)}"


def size(number_of_bytes: int) -> str:
    """Bytes in units of 10^9, as bandwidths are."""
    return f"{number(number_of_bytes / 10**9)} GB" if number_of_bytes else "0"


def progress(
    incumbent: Objective | None, bound: Objective | None, unit: str = ""
) -> str:
    """Incumbent, bound and gap in one line, as far as they are known."""
    words = []
    if incumbent is not None:
        words.append(f"plan {amount(incumbent, unit)}")
    if bound is not None:
        words.append(f"bound {amount(bound, unit)}")
    if incumbent is not None and bound:
        distance = abs(Fraction(incumbent) - Fraction(bound)) / abs(Fraction(bound))
        words.append(f"gap {share(float(distance))}")
    return ", ".join(words) or "no plan yet"


def ports(busy: Mapping[str, Fields]) -> str:
    """The busiest network ports: `activations 8 ms at a, gradients 4 ms at b`."""
    sent = {"pipelines": "activations", "sync": "gradients"}
    return ", ".join(
        f"{sent[phase]} {amount(port['us'], 'us')} at {port['node']}"
        for phase, port in busy.items()
    )


def chosen(choice: Mapping[str, object]) -> str:
    """The settings that a provisioning chose; nothing where it had no choice."""
    if choice["recompute"] is None:
        return ""
    zero = f"ZeRO-{choice['zero']}" if choice["zero"] else "no ZeRO"
    batches = f"{choice['micro_batches']:,} micro-batches per iteration"
    return f"recompute {choice['recompute']}, {zero}, {batches}"


def machines(rows: Iterable[Fields]) -> str:
    """Return what to rent, as it is rented: `1 machine of 8 × B200`, or `24 × A30`."""
    texts = []
    for row in rows:
        count, each = row["machines"], row["gpus_of_each"]
        of = f"machine{'s' * (count != 1)} of {each} × " if each > 1 else "× "
        at = f" at {row['place']}" if row["place"] else ""
        texts.append(plain(f"{count} {of}{row['gpu']}{at}"))
    return " + ".join(texts)


def layers(runs: Iterable[range]) -> str:
    """Return the layers of runs, counted from 0, both ends included: `0–6, 17–22`."""
    return spans([layer for run in runs for layer in run])


def gpus_of(stage: Stage, cluster: Cluster) -> str:
    """The stage's tensor-parallel groups: `2 × (4 × A100 on node0)`."""
    groups = Counter(
        f"{replica.degree} × {cluster.node[replica.node].gpu} on {replica.node}"
        for replica in stage.replicas
    )
    return plain(
        ", ".join(text if n == 1 else f"{n} × ({text})" for text, n in groups.items())
    )


def numbered(numbers: Sequence[int]) -> str:
    """The numbers of equal rows, and how many there are: `4 × (0–2, 5)`."""
    many = len(numbers)
    return spans(numbers) if many == 1 else f"{many} × ({spans(numbers)})"
