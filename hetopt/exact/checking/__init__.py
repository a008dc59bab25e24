"""Bounds of the engine derived again from their certificate, by code of its own.

A certificate is a tree of boxes and whole prices at its leaves. The engine
(`exact/pipelines`) finds it; here the boxes are divided again, stages are made anew
from the cost table, and at each leaf potentials show that no pipeline takes more than
it pays for, or that whole ones together take less than the batch. The two share the
cost model and the record, and no line of a proof.
"""

from .tree import missing

__all__ = ["missing"]
