"""What ranks have in common, loaded once: PyTorch, and what its optimisers load."""

import torch
from plain_decoder import Single

from hetopt.runtime import checkpoint, training

__all__ = ["Single", "checkpoint", "training"]

torch.optim.AdamW([torch.zeros(1)])
