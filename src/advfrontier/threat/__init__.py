"""What an attacker may do: norms, and the losses that say how far a sample is from being misclassified.

`names` needs no torch, so this package imports nothing itself.
"""
