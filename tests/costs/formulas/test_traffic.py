"""Bytes that move through memory beside products, operator by operator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.costs.constants import Table, plain, shipped
from hetopt.costs.formulas.architecture import Architecture
from hetopt.costs.formulas.kernels import traffic_s
from hetopt.costs.formulas.layout import Layout
from hetopt.costs.formulas.machine import Machine
from hetopt.schema.layers import ATTENTION, DENSE

C = Table(plain(shipped.constants()))
RATE = 3.35e12
H100 = Machine("H100", "Hopper", {"bf16": 989e12}, RATE, 80, 8, 8, 450e9, 8, 50e9)
LLAMA = Architecture(((ATTENTION, DENSE),) * 2, 4096, 32, 8, 128, 14336, True, 128256)


def moved(part: str, framework: str, tokens: int) -> float:
    """Bytes of the forward pass of a part."""
    run = Layout(framework, "eager", "bf16", tokens, micro_batch=1, micro_batches=1)
    return traffic_s(C, H100, LLAMA, run, part) * RATE


@given(st.integers(1, 2**20))
def test_norms_and_rotations_of_transformers_move_each_operand(tokens: int) -> None:
    """Read and written by each operator, bytes of an element by those of its type."""
    reads = (2, 4, 4, 4, 4, 2)  # widened, squared, averaged, scaled, narrowed, weighed
    writes = (4, 4, 0, 4, 2, 2)
    norm = sum(reads) + sum(writes) - 4  # less those of a kernel of its own
    turn = (1 + 1) + (2 + 2) + 2 * (2 + 2) + (4 + 2)
    by_hand = tokens * norm * 4096
    for part, more in ((DENSE, 0), (ATTENTION, tokens * turn * (32 + 8) * 128)):
        beyond = moved(part, "trainer", tokens) - moved(part, "torch", tokens)
        assert beyond == pytest.approx(by_hand + more)
