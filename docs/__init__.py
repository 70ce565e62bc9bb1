"""The pages of the documentation, and the modules that write the pages of the reference."""
