"""Shared: all GPUs generate, then all of them train, in turn.

What synchronous trainers do (HybridFlow's colocated workers, arXiv 2409.19256): nothing
is stale, and every GPU waits for the longest answer.
"""

from ..search.halves import by_rule

problem = "post_training"
plan = by_rule("shared", lambda halves: None)
