"""Radii inside which a feed-forward ReLU network provably gives no wrong answer."""

from advfrontier.certified.bounds import SUPPORTED, certified_radius

__all__ = ["SUPPORTED", "certified_radius"]
