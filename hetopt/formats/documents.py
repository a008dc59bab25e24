"""Plain data of foreign tools and of ours, by the names that all formats use."""

from ..text.documents import Document, Fields

__all__ = ["Document", "Options", "Values"]

#: The types of options by their names, as `text.options` reads them.
Options = Document
#: Values by their names: options that were given, or fields of a file.
Values = Fields
