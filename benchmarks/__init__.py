"""What a call, a page and an import cost: each ``python -m benchmarks.bench_x``, the verdict ``python -m benchmarks.report``."""
