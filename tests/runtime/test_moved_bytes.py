"""Bytes that the executor's own operators move, counted as they run: the constants."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from hetopt.costs.constants import shipped  # noqa: E402
from hetopt.costs.formulas import kernels, step  # noqa: E402
from hetopt.runtime.model import _turn  # noqa: E402
from hetopt.runtime.tensor_parallel import Cut, cross_entropy  # noqa: E402

#: Of what these read they touch one element a row.
SPARSE = ("gather", "nll_loss_forward", "nll_loss_backward")
#: They move nothing: a part of a tensor, or another shape of it.
VIEWS = (
    "split",
    "slice",
    "view",
    "transpose",
    "detach",
    "alias",
    "unsqueeze",
    "expand",
)


class Moved(TorchDispatchMode):
    """It adds up what each operator reads and writes, larger than a row's figures."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.least, self.bytes = least, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        name = func.__name__.split(".")[0].strip("_")
        if name.startswith(VIEWS):
            return made
        read = [] if name.startswith(SPARSE) else self.sizes((args, kwargs))
        self.bytes += sum(read) + sum(self.sizes(made))
        return made

    def sizes(self, found: Any) -> Iterator[int]:
        for x in tree_leaves(found):
            if isinstance(x, torch.Tensor) and x.numel() >= self.least:
                yield x.numel() * x.element_size()


def moved(compute: Callable[[], object], elements: int, least: int) -> float:
    """Return the bytes that a computation moves for each of so many elements."""
    with Moved(least) as seen:
        compute()
    return seen.bytes / elements


def test_a_logit_moves_what_the_constant_says_beside_pytorchs_loss() -> None:
    rows, vocabulary = 64, 512
    targets = torch.randint(0, vocabulary, (1, rows))
    alone = Cut(None, 0, 1, rows, by_sequence=False)

    def own(x: Any) -> Any:
        return cross_entropy(x, targets, 0, alone)

    def plain(x: Any) -> Any:
        flat = x.float().view(rows, vocabulary)
        return torch.nn.functional.cross_entropy(flat, targets[0], reduction="sum")

    def both(loss: Callable[[Any], Any]) -> float:
        x = torch.randn(1, rows, vocabulary, dtype=torch.bfloat16, requires_grad=True)
        return moved(lambda: loss(x).backward(), rows * vocabulary, rows * 8)

    ratio = shipped.values()["head.bytes@executor"]
    assert both(own) / both(plain) == pytest.approx(ratio, rel=0.03)


def test_a_parameter_moves_what_the_constant_says_beside_the_count() -> None:
    n = 4096
    weight = torch.randn(n, dtype=torch.bfloat16)
    gradient = torch.randn(n, dtype=torch.bfloat16)
    master = weight.float().requires_grad_()
    adam = torch.optim.AdamW([master], betas=(0.9, 0.95), foreach=False)

    def update() -> None:
        """As `Update.norm`, `step` and `spread` do to each piece."""
        torch.linalg.vector_norm(gradient.float())
        master.grad = gradient.to(master.dtype) * 0.5
        adam.step()
        with torch.no_grad():
            weight.copy_(master)

    update()  # its states are made
    ratio = shipped.values()["update@executor"]
    counted = moved(update, n, n)
    assert counted / step.UPDATE_BYTES == pytest.approx(ratio, rel=0.06)


def test_an_element_that_is_turned_moves_what_is_counted() -> None:
    x = torch.randn(1, 4, 256, 64, dtype=torch.bfloat16)
    cosine, sine = (torch.randn(256, 64, dtype=torch.bfloat16) for _ in range(2))
    found = moved(lambda: _turn(x, cosine, sine), x.numel(), x.numel() // 2)
    assert found == pytest.approx(kernels.TURN_BYTES, rel=0.05)
