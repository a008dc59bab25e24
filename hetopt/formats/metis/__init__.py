"""Metis: its clusters, its profiles and the ranked plans that it prints."""
