"""Idle GPUs of a scheduling round, as rules of assignment take them.

The slots of a round are read as blocks of GPUs of one type, each of a power of two: a
node of six is a block of four and one of two. A job takes a block of at least its GPUs,
of which the rest stays; one that is larger than every node takes whole blocks of the
largest size. So every assignment that fits blocks fits the slots.
"""

from collections import Counter, defaultdict

from ..plans import Round, Served
from ..problems.job_round import Data


class Blocks:
    """Idle GPUs of each type, in blocks by size."""

    def __init__(self, data: Data) -> None:
        """Read the slots of a round; all of its GPUs are idle."""
        limits: dict[str, dict[int, int]] = defaultdict(dict)
        for slots in data.slots:
            limits[slots.gpu][slots.size] = slots.gpus
        self._largest = {
            gpu: 1 << (max(sizes) - 1).bit_length() for gpu, sizes in limits.items()
        }
        self._free = {
            gpu: _blocks(sizes, self._largest[gpu]) for gpu, sizes in limits.items()
        }
        self._served: Counter[tuple[str, str, int]] = Counter()

    def take(self, job_class: str, gpu: str, gpus: int) -> bool:
        """Give a job its GPUs by best fit; False, and nothing changes, without room."""
        free, size = self._free[gpu], self._largest[gpu]
        if gpus > size:
            if free[size] < gpus // size:
                return False
            free[size] -= gpus // size
        else:
            able = [one for one, count in free.items() if count and one >= gpus]
            if not able:
                return False
            size = min(able)
            free[size] -= 1
            while size > gpus:
                size //= 2
                free[size] += 1
        self._served[job_class, gpu, gpus] += 1
        return True

    def plan(self) -> Round:
        """Return what jobs were given."""
        return Round(
            served=tuple(
                Served(job_class=name, gpu=gpu, gpus=gpus, jobs=jobs)
                for (name, gpu, gpus), jobs in self._served.items()
            )
        )


def _blocks(limits: dict[int, int], largest: int) -> Counter[int]:
    """Return the number of blocks of each size, the largest ones first.

    `limits` say what jobs of at least some size hold together.
    """
    found: Counter[int] = Counter()
    size, taken = largest, 0
    while size:
        room = min((n for least, n in limits.items() if least <= size), default=None)
        if room is not None:
            found[size] = (room - taken) // size
            taken += found[size] * size
        size //= 2
    return found
