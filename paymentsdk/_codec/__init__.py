"""Structs to bytes and back, exactly."""
