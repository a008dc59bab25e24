"""PyTorch, which is an extra: types of its objects are not known where it is absent.

Only modules that run within a rank import this one.
"""

from importlib import import_module
from typing import Any, TypeAlias

Foreign: TypeAlias = Any  # a module, or an object, of PyTorch's

torch: Foreign = import_module("torch")
dist: Foreign = import_module("torch.distributed")
functional: Foreign = import_module("torch.nn.functional")
again: Foreign = import_module("torch.utils.checkpoint").checkpoint

Tensor: TypeAlias = Foreign
Dtype: TypeAlias = Foreign
Device: TypeAlias = Foreign
Size: TypeAlias = Foreign
Group: TypeAlias = Foreign  # of processes, which exchange tensors
Context: TypeAlias = Foreign  # what a forward pass leaves to its backward pass
