"""Megatron-LM: its launch, its arguments of a model, plans of running jobs."""
