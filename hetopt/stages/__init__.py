"""The stage table: what any stage of any plan takes, in whole numbers.

Methods that search or prove ask again and again how long a stage takes, whether it fits
and what it synchronises. They all read one table of one instance: equal nodes as one
class, runs of layers by number, times in us, sizes in whole units. Only the judge and
the checker of certificates compute these by themselves, from the cost model.

A number in the table is never on the wrong side of the truth: a time is the least that
the judge could give any such stage, and what a stage synchronises is rounded down where
it limits, and up where it helps.
"""

from .classes import NEVER, NodeClass
from .runs import Runs
from .sync import SyncSizes
from .table import StageTable

__all__ = ["NEVER", "NodeClass", "Runs", "StageTable", "SyncSizes"]
