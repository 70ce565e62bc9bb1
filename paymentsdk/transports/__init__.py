"""What carries requests: one file per HTTP library, and each is imported only by those who use it."""
