"""Attacks that are not solvers: any callable, and AutoAttack, each with a ledger of its passes."""
