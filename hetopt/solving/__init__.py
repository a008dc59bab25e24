"""Statements on back ends, certificates, and the one run of every method."""
