"""This machine: its GPUs, and how long layers take on them."""
