"""The bound by prices of pipeline patterns, for clusters of any size."""
