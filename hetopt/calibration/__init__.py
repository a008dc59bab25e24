"""Predictions beside measured runs, and the constants that they are fitted with."""
