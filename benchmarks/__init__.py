"""What a call, a page and an import cost: ``python -m benchmarks.bench_call``, ``.bench_decode`` and so on."""
