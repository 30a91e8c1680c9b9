"""Benchmarks: many models in several norms, one table of distances, and the paper's tables."""
