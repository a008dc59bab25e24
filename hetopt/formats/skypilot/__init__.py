"""SkyPilot: its price lists, and tasks that it launches."""
