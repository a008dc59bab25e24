"""Ways to be divided that an assembled instance offers a plan.

Powers of two: of long sequences up to the GPUs of a host, of experts up to all GPUs,
and one, two or four virtual stages per GPU. A trainer that has none of it is planned
for without (`hetopt.search.choices`).
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count, takewhile

from ...errors import InstanceError, Unsupported
from ...schema import Alternatives, Instance, set_fields
from ...schema.groups import FIELDS
from ...text import options
from ...text.complaints import validated
from ...text.documents import Document, Fields
from ..foreign import whole_numbers
from .assumptions import Assumption, choices

#: Options, as lists of degrees: `1,2,4`.
OPTIONS: Document = dict.fromkeys(FIELDS[:3], str)

_LONG = 32_768  # tokens, from where sequences are divided unless told
_RUNS = (1, 2, 4)
_MOST = 64  # GPUs that divide experts unless told


def alternatives(
    made: Fields, given: Fields
) -> tuple[dict[str, list[int]], tuple[Assumption, ...]]:
    """Return the fields of `workload.alternatives`, and what is assumed.

    `given` are the values of `OPTIONS` that were told. `InstanceError` for what is no
    degree, and for sequences that no node can share.
    """
    counts = [node.get("count", 1) for node in made["cluster"]["nodes"]]
    tokens = made["workload"]["sequence_length"]
    most, experts = min(sum(counts), _MOST), made["model"].get("experts") or 1
    longest = max(counts) if tokens >= _LONG else 1
    usual = {
        "context_parallel": _doubled(
            lambda c: c == 1 or (c <= longest and tokens % (2 * c) == 0)
        ),
        "expert_parallel": _doubled(lambda e: e <= most and experts % e == 0),
        "interleave": (v for v in _RUNS if v == 1 or sum(counts) > max(counts)),
    }
    if "zero_groups" in given:  # which are not priced with these
        usual |= {"context_parallel": iter([1]), "expert_parallel": iter([1])}
    found, rows = {}, []
    for field, degrees in usual.items():
        told = given.get(field)
        found[field] = (
            [*degrees]
            if told is None
            else whole_numbers(field, told, "degrees such as 1,2,4")
        )
        if field == "context_parallel" and min(found[field]) > max(counts):
            raise InstanceError(
                f"option {field}: found {told}, expected {max(counts)} or less: groups "
                "of a plan lie in one node; hetopt predict takes a row of such a run"
            )
        if told is None and len(found[field]) > 1:
            value = " / ".join(map(str, found[field]))
            what = field.replace("_", " ")
            change = f"-o {field}={found[field][-1]}"
            rows.append(Assumption(what, value, "chosen by the planner", change))
    offers = {field: degrees for field, degrees in found.items() if degrees != [1]}
    return offers, tuple(rows)


def with_choices(data: Instance, words: Iterable[str]) -> Instance:
    """Return an instance with other ways to be divided, `name=value` or `name=1,2`.

    The first value stands in its costs, several are a choice of the plan. `Unsupported`
    for what is no field of `workload.alternatives`.
    """
    tree = data.model_dump(mode="json", exclude_unset=True)
    workload = tree["workload"]
    costs, offers = workload.setdefault("costs", {}), workload.get("alternatives", {})
    for name, text in options.pairs(words).items():
        if name not in Alternatives.model_fields:
            raise Unsupported(
                "found options with an instance, which says itself what is trained "
                f"({name}), expected some of {', '.join(Alternatives.model_fields)}; "
                "give others with names of GPUs (--gpus)"
            )
        values = choices(name, text)
        set_fields(costs, {name: values[0]})
        offers = {**offers, name: values if len(values) > 1 else []}
    workload["alternatives"] = {name: x for name, x in offers.items() if x}
    return validated(Instance, tree, f"instance {data.name}", file="")


def _doubled(goes_on: Callable[[int], bool]) -> Iterator[int]:
    """Yield the powers of two as long as a condition holds."""
    return takewhile(goes_on, (1 << n for n in count()))
