"""Tokens: the schemes that sign a request, their refresh, and where a pair is kept."""
