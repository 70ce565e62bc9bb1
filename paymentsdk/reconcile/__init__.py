"""Reconciliation: walks that prove that they are whole."""
