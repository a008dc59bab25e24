"""Measures the layers of a model on the GPU at hand, for `costs.layer_times: profile`.

`layer` is one transformer layer in PyTorch, as wide as a tensor-parallel shard of it;
`timing` runs it on a device; `rows` makes a profile of what was measured.
"""

from .rows import Asked, Measured, Profiled, profiled

__all__ = ["Asked", "Measured", "Profiled", "profiled"]
