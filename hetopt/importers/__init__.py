"""The names that SkyPilot gives to cards."""
