"""Measures the layers of a model on the GPU at hand, for `costs.layer_times: profile`.

`layer` says how wide a tensor-parallel shard of a layer is (`..decoder` computes it);
`timing` runs it on a device; `rows` makes a profile of what was measured.
"""

from .rows import Asked, Measured, Profiled, profiled

__all__ = ["Asked", "Measured", "Profiled", "profiled"]
