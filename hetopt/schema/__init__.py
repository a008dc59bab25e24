"""The shared instance schema: what there is, and what is to be trained on it.

Records are frozen and strict; units end the names. Numbers are taken as the exact
decimals that the file shows (`exact`), so that every part of hetopt computes with
the same rationals.
"""

from .calibration import Calibration as Calibration
from .calibration import Profile as Profile
from .cluster import Cluster as Cluster
from .cluster import GpuType as GpuType
from .cluster import Inter as Inter
from .cluster import Island as Island
from .cluster import Link as Link
from .cluster import Node as Node
from .generation import Generation as Generation
from .groups import Compute as Compute
from .groups import Links as Links
from .groups import Memory as Memory
from .groups import Recompute as Recompute
from .groups import Schedule as Schedule
from .groups import Split as Split
from .groups import Updates as Updates
from .instance import Instance as Instance
from .instance import Offer as Offer
from .instance import Requirements as Requirements
from .instance import Search as Search
from .layers import Indexer as Indexer
from .layers import LatentAttention as LatentAttention
from .layers import LayerShape as LayerShape
from .layers import LinearAttention as LinearAttention
from .layers import MambaMixer as MambaMixer
from .layers import SelectiveMixer as SelectiveMixer
from .layers import ShortConvolution as ShortConvolution
from .layers import Vectors as Vectors
from .model import MOST_LAYERS as MOST_LAYERS
from .model import ModelSpec as ModelSpec
from .record import LONGEST_NAME as LONGEST_NAME
from .record import Count as Count
from .record import Counted as Counted
from .record import Efficiency as Efficiency
from .record import GbytesPerS as GbytesPerS
from .record import GpuId as GpuId
from .record import LatencyUs as LatencyUs
from .record import Length as Length
from .record import Name as Name
from .record import NotNegative as NotNegative
from .record import Record as Record
from .record import Seconds as Seconds
from .record import Usd as Usd
from .record import UsdPerHour as UsdPerHour
from .record import exact as exact
from .record import link_of as link_of
from .record import name_fault as name_fault
from .record import once as once
from .record import printable as printable
from .record import table_record as table_record
from .settings import GROUP_OF as GROUP_OF
from .settings import GROUPS as GROUPS
from .settings import PRESETS as PRESETS
from .settings import CostSettings as CostSettings
from .settings import group_fields as group_fields
from .settings import set_fields as set_fields
from .settings import ungroup_fields as ungroup_fields
from .states import PRECISIONS as PRECISIONS
from .states import Lora as Lora
from .states import Offload as Offload
from .states import StateBytes as StateBytes
from .states import lora_fault as lora_fault
from .workload import Alternatives as Alternatives
from .workload import Workload as Workload
