"""Small programs that make a call over TLS, one module each, for :mod:`benchmarks.bench_cold`.

Each follows the documentation of its library, and imports nothing else, since the measurement includes the imports.

- ``NAME``: the name in results.
- ``connect(base_url, authority)``: an asynchronous context manager that yields a call. *authority* is the file of the
  certificate authority to trust.
"""
