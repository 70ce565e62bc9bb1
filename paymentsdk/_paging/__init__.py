"""Walks over all pages of a search, the proof that no row is missing, and the export to files."""
