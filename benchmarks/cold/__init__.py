"""Small programs that make a call over TLS, one module each, for :mod:`benchmarks.bench_cold`.

Each is what the documents of its library show, and imports nothing else: here the imports are part of what is measured.

- ``NAME``: how it is called in results.
- ``connect(base_url, authority)``: an asynchronous context manager that yields a call. *authority* is the file of the
  certificate authority to trust.
"""
