"""Statements on back ends, and the one run that knows incumbent, bound and limits."""
