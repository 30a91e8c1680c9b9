"""Robustness curves from ensembles of minimum-norm attacks."""
