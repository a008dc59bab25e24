"""Trainers built on transformers: Trainer, Accelerate, DeepSpeed, TRL and others."""
