"""Compact plans: what they cost, balancing, local moves, choices of settings."""
