"""The pages of the documentation, and what writes those of the reference."""
