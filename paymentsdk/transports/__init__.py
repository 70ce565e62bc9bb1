"""What carries requests: one module per HTTP library, and each is imported only by those who use it."""
