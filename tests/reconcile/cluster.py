"""A Dask cluster of some worker processes, as a program: it prints its address, and ends with its standard input."""

from __future__ import annotations

import sys

import distributed

if __name__ == "__main__":
    with distributed.LocalCluster(
        n_workers=int(sys.argv[1]), threads_per_worker=2, processes=True, dashboard_address="127.0.0.1:0"
    ) as cluster:
        sys.stdout.write(f"{cluster.scheduler_address}\n")
        sys.stdout.flush()
        sys.stdin.read()
