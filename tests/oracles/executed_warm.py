"""What ranks have in common, loaded once: PyTorch, and what its optimisers load."""

import torch
from plain_decoder import Single

from hetopt.runtime import states, training

__all__ = ["Single", "states", "training"]

torch.optim.AdamW([torch.zeros(1)])
