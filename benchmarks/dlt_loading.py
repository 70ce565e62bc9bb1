"""Loads merchant orders into Parquet files with dlt, as its documentation shows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dlt
from dlt.sources.helpers.rest_client import RESTClient
from dlt.sources.helpers.rest_client.paginators import OffsetPaginator


def load(base_url: str, sellers: list[str], page: int) -> int:
    """Load the orders of all sellers, and return their number."""
    with tempfile.TemporaryDirectory() as out:
        os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
        os.environ["DLT_DATA_DIR"] = out

        @dlt.resource(name="orders", max_table_nesting=0)
        def orders() -> Iterator[object]:
            for name in sellers:
                client = RESTClient(
                    base_url=base_url,
                    headers={"Authorization": f"Bearer {name}"},
                    paginator=OffsetPaginator(limit=page, total_path="total"),
                    data_selector="elements",
                )
                yield from client.paginate("/merchant_orders/search")

        destination = dlt.destinations.filesystem(bucket_url=Path(out, "files").as_uri())
        pipeline = dlt.pipeline("orders", destination=destination, dataset_name="orders", pipelines_dir=out)
        pipeline.run(orders(), loader_file_format="parquet")
        return int(pipeline.last_trace.last_normalize_info.row_counts["orders"])
