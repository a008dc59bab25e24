"""Records with other values inside."""

import json
from collections.abc import Callable
from typing import Any

from flat import flat

from hetopt.schema import Instance


def changed(instance: Instance, change: Callable[[dict[str, Any]], None]) -> Instance:
    """The instance with `change` done to its plain data."""
    data = flat(instance)
    change(data)
    return Instance.model_validate_json(json.dumps(data))
