"""Back ends: one file a solver library, the only files that import one.

A module has `backend() -> Model` (a fresh, empty model) and `version() -> str`; both
raise `BackendMissing` where the library is not installed.
"""
