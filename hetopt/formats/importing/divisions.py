"""Ways to be divided that an assembled instance offers a plan.

Powers of two: of long sequences up to the GPUs of a host, of experts up to all GPUs,
and stages of one, two or four runs of layers. A trainer that has none of it is planned
for without (`hetopt.search.choices`).
"""

from collections.abc import Iterator

from ...errors import InstanceError
from ...schema.splits import FIELDS
from ..contract import Options, Values
from .assumptions import Assumption

#: Options, as lists of degrees: `1,2,4`.
OPTIONS: Options = dict.fromkeys(FIELDS[:3], str)

_LONG = 32_768  # tokens, from where sequences are divided unless told
_RUNS = (1, 2, 4)
_MOST = 64  # GPUs that divide experts unless told


def offered(
    made: Values, options: Values
) -> tuple[dict[str, list[int]], tuple[Assumption, ...]]:
    """The fields of `workload.alternatives`, and what is assumed.

    `options` are those of `OPTIONS` that were told. `InstanceError` for what is no
    degree.
    """
    counts = [node.get("count", 1) for node in made["cluster"]["nodes"]]
    tokens = made["workload"]["sequence_length"]
    usual = {
        "context_parallel": _contexts(tokens, max(counts)),
        "expert_parallel": _experts(made["model"].get("experts") or 1, sum(counts)),
        "interleave": (v for v in _RUNS if v == 1 or sum(counts) > max(counts)),
    }
    if "zero_groups" in options:  # which are not priced with these
        usual |= {"context_parallel": iter([1]), "expert_parallel": iter([1])}
    found, rows = {}, []
    for field, degrees in usual.items():
        told = options.get(field)
        found[field] = [*degrees] if told is None else _told(field, told)
        if told is None and len(found[field]) > 1:
            value = " / ".join(map(str, found[field]))
            what = field.replace("_", " ")
            change = f"-o {field}={found[field][-1]}"
            rows.append(Assumption(what, value, "a plan chooses, if it can", change))
    offers = {field: degrees for field, degrees in found.items() if degrees != [1]}
    return offers, tuple(rows)


def _contexts(tokens: int, gpus: int) -> Iterator[int]:
    c = 1
    while c == 1 or (tokens >= _LONG and c <= gpus and tokens % (2 * c) == 0):
        yield c
        c *= 2


def _experts(experts: int, gpus: int) -> Iterator[int]:
    e = 1
    while e <= min(gpus, _MOST) and experts % e == 0:
        yield e
        e *= 2


def _told(field: str, words: str) -> list[int]:
    try:
        degrees = [int(word) for word in words.split(",")]
    except ValueError:
        degrees = []
    if not degrees or min(degrees) < 1:
        raise InstanceError(
            f"option {field}: found {words!r}, expected degrees such as 1,2,4"
        )
    return degrees
