"""Checkpoints that a recovery cuts, joins and moves (AutoHet, section IV).

A checkpoint is a folder:

    manifest.json                                  every unit and its whole tensors
    <place>/<unit>.tp<rank>of<degree>.safetensors  one saved shard

A place is a node's name, or `cloud`. A unit is `embedding`, a layer's number, or
`head`: what a training plan gives to a stage. A shard holds the rank's part of every
tensor of its unit: weights, master weights and the optimiser's moments are all tensors.
A unit may be saved at several degrees and in several places; `catalogue` tells which.
A head without a matrix to cut is tied to the embedding, which the last stage then has
too.

`manifest.json` is a `layout.Manifest` (`Manifest.model_json_schema()`):

    {"format": "hetopt-checkpoint", "version": 1, "model": "llama-2-7b", "step": 1200,
     "units": [{"name": "0", "tensors": [
       {"name": "attention.qkv", "dtype": "BF16", "shape": [12288, 4096],
        "axis": 0, "blocks": [4096, 4096, 4096]},
       {"name": "attention.qkv.exp_avg", "dtype": "F32", ...},
       {"name": "attention.out", "dtype": "BF16", "shape": [4096, 4096], "axis": 1},
       {"name": "attention.norm", "dtype": "BF16", "shape": [4096], "axis": null}]}]}

`axis` is the one that degrees cut: 0 for column-parallel matrices, 1 for row-parallel
ones, null for tensors that every rank holds whole. `blocks` are lengths along the axis
that are cut each by itself, so that a shard of a fused matrix is the shards of its
parts, one after the other.

`apply` carries out a recovery plan.
"""

from .applying import Applied, apply
from .layout import Manifest, Shard, Tensor, Unit, catalogue, read_manifest
from .serving import complete, needs, saved_rows
from .sources import incomplete, verified_catalogue

__all__ = [
    "Applied",
    "Manifest",
    "Shard",
    "Tensor",
    "Unit",
    "apply",
    "catalogue",
    "complete",
    "incomplete",
    "needs",
    "read_manifest",
    "saved_rows",
    "verified_catalogue",
]
