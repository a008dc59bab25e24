"""Sailor: profiles and plans that it writes, and a plan written for it."""
