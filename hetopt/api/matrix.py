"""The capability matrix, of all settings or of those of an instance."""

from .. import capability
from .calling import AnyInstance
from .judging import load


def capabilities(instance: AnyInstance | None = None) -> list[dict[str, object]]:
    """Return which method carries which setting, with one row per method.

    A row has `name`, `kind`, `description`, and `carries`: by setting how it is carried
    (`exactly`, `in part`, `not`) and the reason. With an `instance` they are of the
    settings for which it asks. Raises what `load` raises.
    """
    return capability.rows(None if instance is None else load(instance))
