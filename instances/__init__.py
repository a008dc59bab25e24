"""The instance library: data only, one folder a family."""
