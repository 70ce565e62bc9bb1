"""What `import paymentsdk` costs and touches: next to nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import resources

import pytest

#: What a program pays for only when it opens a connection, retries, or meets a malformed response.
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
    """Import *module* in a process of its own, and tell what that did."""
    # A coverage tool that starts in every process would be counted as ours.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "COVERAGE_"))}
    command = [sys.executable, "-B", "-c", REPORT.format(module=module)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(process.stdout)


@pytest.fixture(scope="module")
def imported() -> dict[str, object]:
    """What the import of the package did."""
    return report("paymentsdk")


def test_what_few_need_is_not_imported(imported) -> None:
    """Importing the package imports neither the transport's libraries, nor the retrying, nor the sandbox's."""
    assert DEFERRED.isdisjoint(imported["modules"])


def test_notifications_need_no_transport() -> None:
    """A receiver of notifications makes no calls: importing it imports no library of a transport."""
    assert {"aiohttp", "tenacity", "yarl"}.isdisjoint(report("paymentsdk.webhooks")["modules"])


def test_no_operation_is_compiled(imported) -> None:
    """Encoders and decoders are made when an operation is first used: most programs use few."""
    assert [] == imported["compiled"]


def test_nothing_is_done_at_import_time(imported) -> None:
    """Importing opens no file and no socket, starts no thread and no process, and changes no setting of the process."""
    assert [] == imported["touched"]
    assert 1 == imported["threads"]
    assert imported["filters"]


def test_logging_is_left_alone(imported) -> None:
    """The root logger is as it was, and the package's own loggers write nowhere."""
    assert imported["root"]
    assert set(imported["handlers"]) <= {"NullHandler"}


def test_the_report_sees_what_it_is_there_to_see() -> None:
    """A module that imports and touches a lot is reported: the checks above can fail."""
    handler = "logging.getLogger('paymentsdk.loud').addHandler(logging.StreamHandler())"
    decoder = "[operation.decoder for operation in paymentsdk.OPERATIONS.values()]"
    effects = report(f"aiohttp.web, paymentsdk, sqlite3; sqlite3.connect(':memory:'); {handler}; {decoder}")

    assert {"aiohttp", "sqlite3"} <= DEFERRED.intersection(effects["modules"])
    assert "sqlite3.connect" in effects["touched"]
    assert "StreamHandler" in effects["handlers"]
    assert "orders.create" in effects["compiled"]


def test_type_information_is_shipped() -> None:
    """The marker that tells type checkers to read the package is installed with it."""
    assert resources.files("paymentsdk").joinpath("py.typed").is_file()
