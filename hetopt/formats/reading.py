"""What arguments of a file say by a trainer's table; messages name file and option."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import InstanceError
from ..trainers.table import BadValue, Fields, Given, Table


class Reading(NamedTuple):
    """A reading holds the fields that arguments give, and faults of their values."""

    place: str
    given: Given
    fields: Fields
    faults: Mapping[str, BadValue]
    table: Table

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field; `InstanceError` where its value is none."""
        if (fault := self.faults.get(name)) is not None:
            remedy = "paste the expanded command" if "$" in fault.text else "correct it"
            raise InstanceError(
                f"{self.place}: {fault.name}: found {fault.text!r}, expected "
                f"{fault.expected}; {remedy}"
            )
        return self.fields.get(name, default)

    def need(self, name: str) -> Any:
        """Return a field; `InstanceError` where no argument gives it."""
        if (value := self.get(name)) is None:
            raise InstanceError(
                f"{self.place}: {self.table.name_of(name)}: found nothing, expected "
                "a whole number; give the file, or the command, that has it, too: "
                "--from FILE"
            )
        return value


def reading_of(table: Table, given: Given, place: str) -> Reading:
    """Return what arguments of a place say."""
    return Reading(place, given, *table.read(given), table)
