"""Importers: one file a foreign format, read into what hetopt's own files hold.

The file name is the name of the format, and the first line of its docstring says what
it reads. A module has

    OPTIONS: dict[str, type]              names of its options, and their types
    read(paths, **options) -> dict        a document to write: plain data, no records

Files are data: nothing in them is run, and what is wrong with one is an
`InstanceError` that names file and line.
"""
