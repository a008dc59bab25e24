"""Data sheets of GPUs and architectures of models, one place for all."""
