"""Statements: one file a statement, its docstring is the mathematics."""
