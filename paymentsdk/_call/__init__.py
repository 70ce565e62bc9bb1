"""The way of a call."""
