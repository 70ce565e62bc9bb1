"""`import paymentsdk` is cheap and has no side effects."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

#: Modules that are only imported to open a connection, to retry, or for a malformed response.
DEFERRED = {"aiohttp", "http.server", "sqlite3", "tenacity", "yarl"}

REPORT = """
import asyncio, json, logging, sys, threading, warnings

events = []
TOUCHES = ("os.mkdir", "os.putenv", "os.remove", "os.rename", "shutil.", "socket.", "sqlite3.", "subprocess.")

def touches(event, arguments):
    if event == "open":
        path, mode, _ = arguments
        return not str(path).endswith((".py", ".pyc", ".so", ".pyd", ".zip")) or (mode or "r")[0] not in "r"
    return event.startswith(TOUCHES)

filters = list(warnings.filters)
handlers = list(logging.getLogger().handlers)
sys.addaudithook(lambda event, arguments: events.append(event) if touches(event, arguments) else None)

import {module}

modules, touched = sorted(sys.modules), list(events)
operations = getattr(sys.modules.get("paymentsdk"), "OPERATIONS", {{}}).values()
names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "paymentsdk"]
print(json.dumps({{
    "modules": modules,
    "touched": touched,
    "compiled": sorted(o.name for o in operations if {{"encoder", "query_encoder", "decoder"}} & vars(o).keys()),
    "threads": threading.active_count(),
    "filters": warnings.filters[:] == filters,
    "root": logging.getLogger().handlers == handlers and logging.getLogger().level == logging.WARNING,
    "handlers": sorted({{type(h).__name__ for name in names for h in logging.getLogger(name).handlers}}),
}}))
"""


def report(module: str) -> dict[str, object]:
    """Import *module* in a new process, and return the effects."""
    # A coverage tool in every process would count as an effect of the package.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "COVERAGE_"))}
    command = [sys.executable, "-B", "-c", REPORT.format(module=module)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(process.stdout)


@pytest.fixture(scope="module")
def imported() -> dict[str, object]:
    """The effects of importing the package."""
    return report("paymentsdk")


def test_what_few_need_is_not_imported(imported) -> None:
    """Importing the package does not import the libraries of transports, retries and the sandbox."""
    assert DEFERRED.isdisjoint(imported["modules"])


def test_notifications_need_no_transport() -> None:
    """Importing the receiver of notifications imports no library of a transport, since it makes no calls."""
    assert {"aiohttp", "tenacity", "yarl"}.isdisjoint(report("paymentsdk.webhooks")["modules"])


def test_no_operation_is_compiled(imported) -> None:
    """Encoders and decoders are created at the first use of an operation: most programs use few."""
    assert [] == imported["compiled"]


def test_nothing_is_done_at_import_time(imported) -> None:
    """Importing opens no file and no socket, starts no thread and no process, and changes no setting of the process."""
    assert [] == imported["touched"]
    assert 1 == imported["threads"]
    assert imported["filters"]


def test_logging_is_left_alone(imported) -> None:
    """The root logger does not change, and the package's loggers write nothing."""
    assert imported["root"]
    assert set(imported["handlers"]) <= {"NullHandler"}


def test_the_report_sees_what_it_is_there_to_see() -> None:
    """The checks above fail for a module with many effects."""
    handler = "logging.getLogger('paymentsdk.loud').addHandler(logging.StreamHandler())"
    decoder = "[operation.decoder for operation in paymentsdk.OPERATIONS.values()]"
    effects = report(f"aiohttp.web, paymentsdk, sqlite3; sqlite3.connect(':memory:'); {handler}; {decoder}")

    assert {"aiohttp", "sqlite3"} <= DEFERRED.intersection(effects["modules"])
    assert "sqlite3.connect" in effects["touched"]
    assert "StreamHandler" in effects["handlers"]
    assert "orders.create" in effects["compiled"]
