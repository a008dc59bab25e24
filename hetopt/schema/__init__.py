"""The shared instance schema: what there is, and what is to be trained on it.

Records are frozen and strict; units end the names. Numbers are taken as the exact
decimals that the file shows (`exact`), so that every part of hetopt computes with
the same rationals.
"""

from .calibration import Calibration
from .cluster import Cluster, GpuType, Inter, Island, Link, Node
from .groups import Compute, Links, Memory, Recompute, Schedule, Updates
from .instance import Instance, Offer, Requirements, Search
from .layers import (
    Indexer,
    LatentAttention,
    LayerShape,
    LinearAttention,
    MambaMixer,
    SelectiveMixer,
    ShortConvolution,
    Vectors,
)
from .model import MOST_LAYERS, ModelSpec
from .presets import PRESETS
from .profile import Profile
from .record import (
    LONGEST_NAME,
    Count,
    Counted,
    Efficiency,
    GbytesPerS,
    GpuId,
    LatencyUs,
    Length,
    MemoryGib,
    Name,
    NotNegative,
    Positive,
    Record,
    Seconds,
    Usd,
    UsdPerHour,
    exact,
    link_of,
    name_fault,
    printable,
    table_record,
)
from .settings import (
    GROUP_OF,
    GROUPS,
    CostSettings,
    group_fields,
    set_fields,
    ungroup_fields,
)
from .splits import Split
from .states import PRECISIONS, Lora, Offload, StateBytes, lora_fault
from .workload import Alternatives, Workload

__all__ = [
    "GROUPS",
    "GROUP_OF",
    "LONGEST_NAME",
    "MOST_LAYERS",
    "PRECISIONS",
    "PRESETS",
    "Alternatives",
    "Calibration",
    "Cluster",
    "Compute",
    "CostSettings",
    "Count",
    "Counted",
    "Efficiency",
    "GbytesPerS",
    "GpuId",
    "GpuType",
    "Indexer",
    "Instance",
    "Inter",
    "Island",
    "LatencyUs",
    "LatentAttention",
    "LayerShape",
    "Length",
    "LinearAttention",
    "Link",
    "Links",
    "Lora",
    "MambaMixer",
    "Memory",
    "MemoryGib",
    "ModelSpec",
    "Name",
    "Node",
    "NotNegative",
    "Offer",
    "Offload",
    "Positive",
    "Profile",
    "Recompute",
    "Record",
    "Requirements",
    "Schedule",
    "Search",
    "Seconds",
    "SelectiveMixer",
    "ShortConvolution",
    "Split",
    "StateBytes",
    "Updates",
    "Usd",
    "UsdPerHour",
    "Vectors",
    "Workload",
    "exact",
    "group_fields",
    "link_of",
    "lora_fault",
    "name_fault",
    "printable",
    "set_fields",
    "table_record",
    "ungroup_fields",
]
