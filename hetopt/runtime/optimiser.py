"""AdamW on a rank's pieces, with master weights where passes have 16 bits.

With ZeRO 1 the ranks of a lane divide its parameters: each gets the sum of the
gradients of its piece, updates that, and all gather the lane. The global norm counts
every element once, on the piece's owner.
"""

from typing import NamedTuple

from .gradients import Sums, Tensors, View, common, put_back, shared
from .groups import Groups, batches, gathered
from .jobs import Optimiser
from .layout import Lane, Layout, Piece
from .pytorch import Dtype, Foreign, Tensor, dist, torch

_BETAS, _EPS = (0.9, 0.95), 1e-8


class Updated(NamedTuple):
    """A part that a rank updates: piece, place in the own part, master weights."""

    piece: Piece
    view: View
    master: Tensor


class Update:
    """AdamW over the pieces of one rank; `weights` change in place.

    `dtypes` are those of all ranks' weights.
    """

    def __init__(
        self,
        layout: Layout,
        rank: int,
        groups: Groups,
        sums: Sums,
        weights: Tensors,
        dtypes: list[Dtype],
        rules: Optimiser,
    ) -> None:
        self._weights, self._groups, self._sums = weights, groups, sums
        self._dtypes, self._rules = dtypes, rules
        self.pieces = [
            _updated(layout, rank, piece, weights) for piece in layout.pieces(rank)
        ]
        self._lanes = [
            lane
            for lane in layout.lanes_of(rank)
            if layout.zero and len(lane.ranks) > 1 and lane.cut
        ]
        # One after another, or all gradients would be there in wide numbers at once.
        self._parts = [
            (run, _adam(run, rules))
            for run in batches(self.pieces, lambda one: int(one.master.numel()))
        ]
        self._adam_of = {id(u.master): adam for run, adam in self._parts for u in run}

    def state(self, updated: Updated) -> dict[str, Tensor]:
        """The moments and the number of updates of a piece; empty before the first."""
        found: dict[str, Tensor] = self._adam_of[id(updated.master)].state[
            updated.master
        ]
        return found

    def norm(self, gradients: Tensors, scale: float) -> float:
        """The norm of the whole model's gradient, which is held times `scale`."""
        own = [p.view.of(gradients) for p in self.pieces if p.piece.owned]
        device = next(iter(self._weights.values())).device
        total = torch.zeros((), dtype=torch.float64, device=device)
        for gradient in own:
            wide = gradient if gradient.dtype == torch.float64 else gradient.float()
            total += torch.linalg.vector_norm(wide).double() ** 2
        dist.all_reduce(total)
        return float(total.sqrt()) / scale

    def step(self, gradients: Tensors, norm: float, scale: float, rate: float) -> None:
        """Update all weights by gradients that are held times `scale`."""
        limit = self._rules.clip
        factor = 1 / scale
        if limit and norm > limit:
            factor *= limit / (norm + 1e-6)
        for run, adam in self._parts:
            for updated in run:
                part = updated.view.of(gradients)
                updated.master.grad = part.to(updated.master.dtype) * factor
            for group in adam.param_groups:
                group["lr"] = rate
            adam.step()
            adam.zero_grad()
        self.spread()

    def spread(self) -> None:
        """Put the master weights where passes read them, on every rank that does."""
        with torch.no_grad():
            for updated in self.pieces:
                place = updated.view.of(self._weights)
                if place.data_ptr() != updated.master.data_ptr():
                    place.copy_(updated.master)
            for lane in self._lanes:
                self._gather(lane)

    def _gather(self, lane: Lane) -> None:
        """Exchange what the ranks of a lane have updated, all parameters at once."""
        shares = [
            [view.of(self._weights) for view in share]
            for share in shared(self._sums.views(lane), len(lane.ranks))
        ]
        own = [part.reshape(-1) for part in shares[lane.ranks.index(dist.get_rank())]]
        sizes = [sum(part.numel() for part in share) for share in shares]
        dtype = common(lane, self._dtypes)
        flat = gathered(torch.cat(own).to(dtype), sizes, 0, self._groups.of_lane(lane))
        put_back(flat, [part for share in shares for part in share])


def _adam(run: list[Updated], rules: Optimiser) -> Foreign:
    groups = [
        {
            "params": [u.master for u in run if u.piece.parameter.decays == decays],
            "weight_decay": rules.weight_decay if decays else 0.0,
        }
        for decays in (True, False)
    ]
    return torch.optim.AdamW(groups, betas=_BETAS, eps=_EPS)


def _updated(layout: Layout, rank: int, piece: Piece, weights: Tensors) -> Updated:
    own, _ = layout.span(rank, piece.parameter)
    view = View(piece.parameter, piece.start - own, piece.stop - piece.start)
    part = view.of(weights).detach()
    # Passes and updates share what is wide enough for both.
    return Updated(piece, view, part if part.element_size() >= 4 else part.float())
