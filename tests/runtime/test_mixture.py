"""Experts: the gradient of imbalance is that of other people's definition."""

import pytest

from hetopt.runtime.decoder import Experts


def test_imbalance_pulls_as_transformers_has_it() -> None:
    """Of one layer and one sequence both mean the same."""
    torch = pytest.importorskip("torch")
    mixtral = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    from hetopt.runtime.mixture import Mixture
    from hetopt.runtime.tensor_parallel import Cut

    shape = Experts(count=4, active=2, width=3, layers=(0,), auxiliary=0.5)
    generator = torch.Generator().manual_seed(0)
    x, router = (
        torch.randn(*size, generator=generator, dtype=torch.float64)
        for size in ((1, 9, 5), (4, 5))
    )
    router.requires_grad_()
    logits = x[0] @ router.T
    (0.5 * mixtral.load_balancing_loss_func((logits,), 4, 2)).backward()
    want, router.grad = router.grad, None
    mixture = Mixture(shape, Cut(None, 0, 1, 9, by_sequence=False))
    mixture.set_pull(sequences=1, scale=1.0)
    # Experts that give nothing leave the imbalance alone.
    mixture(x, router, lambda number, rows: 0 * rows).sum().backward()
    assert router.grad.numpy() == pytest.approx(want.numpy(), rel=1e-5)
