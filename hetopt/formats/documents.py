"""Plain data of foreign tools and of ours, by the names that all formats use."""

from collections.abc import Mapping
from typing import Any

#: The types of options by their names, as `text.options` reads them.
Options = dict[str, Any]
#: Values by their names: options that were given, or fields of a file.
Values = Mapping[str, Any]
#: Plain data, as JSON has it: a file of ours, or a part of one.
Document = dict[str, Any]
