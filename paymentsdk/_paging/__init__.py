"""From the first row of a search to its last."""
