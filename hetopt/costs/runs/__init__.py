"""Predictions beside measured runs, and the constants that they are fitted with.

A run is a row of `rows`; `description` says what its words mean,
`hetopt.costs.formulas` times it,
`fitting` finds constants, `prediction` sets predictions and measurements side by side.
"""
