"""A row of any form in the model's terms."""

from .described import Described, NotModelled, untold
from .description import symmetric
from .mixed import Mixed, mixed
from .rows import Run

#: A run in the model's terms.
Known = Described | Mixed


def described(run: Run) -> Known:
    """The run in the model's terms; `NotModelled` with the reason where it has none."""
    if run.layout_consistent is False:
        raise NotModelled("its layout contradicts itself, as the row says")
    if run.plan is not None:
        return mixed(run)
    return symmetric(_on_equal_nodes(run))


def _on_equal_nodes(run: Run) -> Run:
    """Return a row without a plan whose nodes are counted in place of listed."""
    if not isinstance(run.nodes, tuple):
        return run
    if len({node.of for node in run.nodes}) > 1:
        raise untold(["plan"], "it, as nodes are not alike")
    (gpu, _, network, link), *_ = (node.of for node in run.nodes)
    told = {
        "gpu": run.gpu or gpu,
        "gpus": run.gpus or sum(node.gpus for node in run.nodes),
        "nodes": len(run.nodes),
        "network": run.network or network,
        "intra_gbytes_per_s": run.intra_gbytes_per_s or link,
    }
    return run.model_copy(update=told)
