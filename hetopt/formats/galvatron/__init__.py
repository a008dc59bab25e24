"""Galvatron: profiles and strategies that it writes, and a strategy written for it."""
