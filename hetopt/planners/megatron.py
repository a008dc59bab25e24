"""Megatron-LM: the best symmetric dp x tp x pp over the whole cluster.

Source: Shoeybi et al. 2019, Narayanan et al. 2021; the baseline of AutoHet and
HexiScale. Its choices are told in `hetopt.search.symmetric`, where the exact methods
find it, too.
"""

from typing import Literal

from ..search.symmetric import plan

__all__ = ["plan", "problem"]
problem: Literal["training_plan"] = "training_plan"
