"""Expected losses of machines, as whole numbers.

An iteration of t us on m[o] machines of each offer is expected to take
    t (1 + sum_o m[o] r[o] h),    h: hours that a loss costs, r[o]: losses an hour,
which is t (unit + sum_o m[o] per_machine[o]) units, `unit` of them a us: the least
common denominator of all r[o] h. The factor grows with every machine, so what bounds
t alone, or t on fewer machines, bounds it too.
"""

from fractions import Fraction
from math import lcm
from typing import NamedTuple

from ...problems.provisioning import Data
from ...schema import exact


class Losses(NamedTuple):
    """Parts of a us, and how many of them each machine of an offer adds."""

    unit: int
    per_machine: dict[str, int]

    @classmethod
    def of(cls, data: Data) -> "Losses":
        """Return the losses of a problem; unit 1 and zeros where nothing is lost."""
        lost_s = exact(data.restart_s or 0) + exact(data.checkpoint_every_s or 0) / 2
        shares: dict[str, Fraction] = {
            offer.gpu: exact(offer.losses_per_hour) * lost_s / 3600
            for offer in data.offers
        }
        unit = lcm(*(share.denominator for share in shares.values()))
        return cls(unit, {gpu: int(share * unit) for gpu, share in shares.items()})
