"""PyTorch, which is an extra: types of its objects are not known where it is absent.

Only modules that run within a rank import this one.
"""

from importlib import import_module
from typing import Any, TypeAlias

torch: Any = import_module("torch")
dist: Any = import_module("torch.distributed")
functional: Any = import_module("torch.nn.functional")
again: Any = import_module("torch.utils.checkpoint").checkpoint

Tensor: TypeAlias = Any
Dtype: TypeAlias = Any
Device: TypeAlias = Any
Size: TypeAlias = Any
