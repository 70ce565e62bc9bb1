"""Measures the cost of calls, pages and imports: ``python -m benchmarks.bench_call``, ``.bench_decode`` and so on."""
