"""Cheap proved bounds: what no plan can be below, from arithmetic alone."""
