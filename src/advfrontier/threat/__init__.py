"""Threat model: norms of perturbations, losses on logits, and random numbers of samples.

`names` needs no torch, so this package imports nothing itself.
"""
