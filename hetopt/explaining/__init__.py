"""Explain why a training plan takes its time and its memory, and what would help.

`times` and `weights` take the judge's iteration and memory apart, `changes` says what
might help, and plans and judges each of them again.
"""

from .changes import Effect
from .explanation import Explanation, explain
from .times import StageTime
from .weights import GpuMemory

__all__ = ["Effect", "Explanation", "GpuMemory", "StageTime", "explain"]
