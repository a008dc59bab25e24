"""Plans that foreign files claim, put on GPUs by the names and counts that they use."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ...catalogue import find_gpu
from ...errors import InstanceError
from ...plans import TrainingPlan
from ...schema import Instance, Recompute


class Settings(NamedTuple):
    """Settings divide a run among its GPUs, and say what it keeps in memory.

    `layers` are those of each stage, where the run tells them.
    """

    tensor_parallel: int
    pipeline_parallel: int
    context_parallel: int
    expert_parallel: int
    interleave: int
    zero_groups: int
    micro_batch_size: int
    recompute: Recompute
    zero: int
    layers: tuple[int, ...] | None = None


class Claim(NamedTuple):
    """One plan of a file; without `plan`, `refused` says why it has no form of ours.

    `data` is what a run is judged on, where it has settings that the instance does not
    offer; `notes` say what these are, and what of its arguments was not read;
    `settings` are those of a run that goes on.
    """

    rank: int
    plan: TrainingPlan | None
    refused: str | None = None
    data: Instance | None = None
    notes: tuple[str, ...] = ()
    settings: Settings | None = None


def claim(rank: int, plan: Callable[[], TrainingPlan]) -> Claim:
    """Return the claim of a plan, which may turn out to have no form of ours."""
    try:
        return Claim(rank, plan())
    except InstanceError as error:
        return Claim(rank, None, str(error))


def names(data: Instance, told: str) -> dict[str, str]:
    """Types of the instance by the names a plan may use, in folded case.

    These are their own and their aliases, where no other type is called so.
    `told` adds names, `A100:A100-80GB-SXM4,T4:T4`; `InstanceError` for an unknown type.
    """
    gpus = data.planned_cluster.gpus
    types = {name.casefold(): name for name in gpus}
    found = {
        alias.casefold(): name for name, gpu in gpus.items() for alias in gpu.aliases
    } | types
    for pair in filter(None, told.split(",")):
        word, _, name = pair.rpartition(":")
        if not word or name.casefold() not in types:
            raise InstanceError(
                f"option types: found {pair!r}, expected NAME:TYPE, TYPE one of "
                f"{', '.join(sorted(types.values()))}; correct it"
            )
        found[word.casefold()] = types[name.casefold()]
    return found


def type_of(words: Iterable[str], named: Mapping[str, str], place: str) -> str:
    """Return the instance's type that one of these spellings of a name means.

    Also where both are names of one card of the catalogue.
    """
    for word in words:
        if (kind := named.get(word.casefold())) is not None:
            return kind
        if (card := find_gpu(word)) is not None:
            for kind in sorted(set(named.values())):
                if find_gpu(kind) == card:
                    return kind
    raise InstanceError(
        f"{place}: found type {word!r}, expected one of the instance: "
        f"{', '.join(sorted(set(named.values())))}; name it with -o types={word}:NAME"
    )


def in_order(data: Instance, sequence: Iterable[str]) -> Iterator[str]:
    """Every GPU, node by node, the types in the order of `sequence`."""
    nodes = data.planned_cluster.nodes
    for kind in dict.fromkeys(sequence):
        for node in nodes:
            if node.gpu == kind:
                yield from (f"{node.name}:{index}" for index in range(node.count))
