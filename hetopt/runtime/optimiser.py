"""AdamW on a rank's pieces, with master weights where passes have 16 bits.

With ZeRO 1 the ranks of a lane divide its parameters: each updates its piece, then all
gather the lane. The global norm counts every element once, on the piece's owner.
"""

from typing import NamedTuple

from .gradients import Sums, Tensors, View, common
from .groups import Groups, gathered
from .jobs import Optimiser
from .layout import Lane, Layout, Piece, divided
from .pytorch import Dtype, Tensor, dist, torch

_BETAS, _EPS = (0.9, 0.95), 1e-8


class Updated(NamedTuple):
    """What a rank updates: the piece, its place in the own part, its master weights."""

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
        self.adam = torch.optim.AdamW(
            [
                {"params": params, "weight_decay": decay}
                for decay, params in (
                    (rules.weight_decay, self._masters(True)),
                    (0.0, self._masters(False)),
                )
            ],
            betas=_BETAS,
            eps=_EPS,
        )

    def _masters(self, decays: bool) -> list[Tensor]:
        return [p.master for p in self.pieces if p.piece.parameter.decays == decays]

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
        for updated in self.pieces:
            part = updated.view.of(gradients)
            updated.master.grad = part.to(updated.master.dtype) * factor
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        self.adam.zero_grad()
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
        place = lane.ranks.index(dist.get_rank())
        shares: list[list[Tensor]] = [[] for _ in lane.ranks]
        for view in self._sums.views(lane):
            if view.parameter.axis is None:
                continue
            for share, (start, stop) in zip(
                shares, divided(0, view.length, len(lane.ranks)), strict=True
            ):
                part = view._replace(first=view.first + start, length=stop - start)
                share.append(part.of(self._weights))
        own = torch.cat([part.reshape(-1) for part in shares[place]])
        sizes = [sum(part.numel() for part in share) for share in shares]
        group = self._groups.of(lane.ranks)
        flat = gathered(own.to(common(lane, self._dtypes)), sizes, 0, group)
        parts = [part for share in shares for part in share]
        for part, values in zip(
            parts, flat.split([part.numel() for part in parts]), strict=True
        ):
            part.copy_(values.view_as(part))


def _updated(layout: Layout, rank: int, piece: Piece, weights: Tensors) -> Updated:
    own, _ = layout.span(rank, piece.parameter)
    view = View(piece.parameter, piece.start - own, piece.stop - piece.start)
    part = view.of(weights).detach()
    # Passes and updates share what is wide enough for both.
    return Updated(piece, view, part if part.element_size() >= 4 else part.float())
