"""Trainers' options as tables: this package knows neither files nor instances."""
