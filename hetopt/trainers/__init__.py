"""Trainers' options as tables; it knows neither files nor instances."""
