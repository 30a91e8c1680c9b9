"""Evaluations: what users ask for, put together from the other rooms."""
