"""Runs the server of the benches: one process on a separate core that responds from memory, and is no bottleneck.

The server is nginx with one worker, if it is installed (Debian: ``nginx-light``), else :mod:`benchmarks.responses`, a
small asyncio server. Both listen only on 127.0.0.1. This module opens the sockets and hands them over, so that a client
can connect immediately.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import Template

from msgspec import Struct

from benchmarks import payloads
from benchmarks.harness import cores, on_core

_NGINX = shutil.which("nginx") or ("/usr/sbin/nginx" if Path("/usr/sbin/nginx").exists() else None)


#: From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1


class Server(Struct, frozen=True):
    """A running server.

    Attributes:
        kind: ``nginx`` or ``asyncio``.
        plain: The base URL without TLS.
        tls: The base URL with TLS; empty without TLS.
        authority: The file of the certificate authority that clients must trust; empty without TLS.
        pid: The process id of the server.
    """

    kind: str
    plain: str
    tls: str
    authority: str
    pid: int

    def cpu_seconds(self) -> float:
        """Return the CPU time of the server and its worker so far; 0 if the system does not report it."""
        try:
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            used = [Path(f"/proc/{pid}/schedstat").read_text().split()[0] for pid in (self.pid, *children)]
            return sum(map(int, used)) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0


class FixedResponse(Struct, frozen=True):
    """One fixed response. A *path* that ends in a slash matches any id after it, and the response has this id."""

    method: str
    path: str
    status: int
    body: bytes


def fixed_responses() -> list[FixedResponse]:
    """Return the responses to every call of the benches."""
    return [
        FixedResponse("GET", "/v1/orders/", 200, payloads.order()),
        FixedResponse("POST", "/v1/orders", 201, payloads.created_order()),
        FixedResponse("GET", "/v1/payment_intents/", 200, payloads.payment_intent()),
        FixedResponse("POST", "/v1/payment_intents", 200, payloads.payment_intent("pi_3MtwBwLkdIwHu7ix28a3tqPa")),
        FixedResponse("GET", "/v1/chat/completions/", 200, payloads.chat_completion()),
        FixedResponse(
            "POST", "/v1/chat/completions", 200, payloads.chat_completion("chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG")
        ),
    ]


@contextlib.contextmanager
def nginx_or_asyncio() -> Iterator[Server]:
    """Run the server of the call benches: fixed responses, plain and TLS."""
    with tempfile.TemporaryDirectory() as name, _listening(2) as listeners:
        folder = Path(name)
        _certify(folder)
        command, environment = _nginx(folder, listeners) if _NGINX else _asyncio(listeners, folder)
        plain, tls = (listener.getsockname()[1] for listener in listeners)
        with _running(command, environment, listeners) as pid:
            yield Server(
                kind="nginx" if _NGINX else "asyncio",
                plain=f"http://127.0.0.1:{plain}",
                tls=f"https://127.0.0.1:{tls}",
                authority=str(folder / "authority.pem"),
                pid=pid,
            )


@contextlib.contextmanager
def pages(*, latency: float, rows: str = "full", total: int) -> Iterator[Server]:
    """Run a server of merchant order pages that responds to each request after *latency* seconds.

    Args:
        latency: The seconds from the last byte of the request to the first byte of the response.
        rows: ``full`` for merchant orders as in real traffic, ``small`` for rows of four members.
        total: The number of rows of the search.
    """
    with _listening(1) as listeners:
        command, environment = _asyncio(listeners)
        command += ["--latency", str(latency), "--rows", rows, "--total", str(total)]
        port = listeners[0].getsockname()[1]
        with _running(command, environment, listeners) as pid:
            yield Server("asyncio", f"http://127.0.0.1:{port}", "", "", pid)


def trusting(authority: str) -> ssl.SSLContext:
    """Return a context that trusts only *authority*."""
    return ssl.create_default_context(cafile=authority)


@contextlib.contextmanager
def _listening(count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1024)) for _ in range(count)]
        for listener in listeners:
            listener.set_inheritable(True)
        yield listeners


@contextlib.contextmanager
def _running(command: Sequence[str], environment: dict[str, str], listeners: Sequence[socket.socket]) -> Iterator[int]:
    with on_core(cores()[1]):  # A child process stays on the core of its parent.
        process = subprocess.Popen(  # noqa: S603 - our own command
            command,
            env=os.environ | environment,
            pass_fds=[listener.fileno() for listener in listeners],
            cwd=Path(__file__).parent.parent,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - there are no threads yet
        )
    # Only the server holds the sockets from now on: if it dies, clients get an error instead of waiting forever.
    for listener in listeners:
        listener.close()
    try:
        yield process.pid
    finally:
        died = process.poll()
        process.terminate()
        process.wait(10)
    if died is not None:
        raise RuntimeError(f"the server ended by itself with {died}")


def _die_with_parent() -> None:
    """Make the kernel end this process when its parent process ends in any way."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_PR_SET_PDEATHSIG, signal.SIGTERM):
        raise OSError(ctypes.get_errno(), "prctl")


def _certify(folder: Path) -> None:
    import trustme  # noqa: PLC0415 - only benches with TLS need it

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))


_NGINX_CONFIG = Template("""
daemon off;
worker_processes 1;
pid $folder/nginx.pid;
error_log $folder/error.log error;
events { worker_connections 4096; }
http {
  access_log off;
  default_type application/json;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  client_body_temp_path $folder/body;
  proxy_temp_path $folder/proxy;
  fastcgi_temp_path $folder/fastcgi;
  uwsgi_temp_path $folder/uwsgi;
  scgi_temp_path $folder/scgi;
  server {
    listen 127.0.0.1:$plain;
    listen 127.0.0.1:$tls ssl;
    ssl_certificate $folder/server.pem;
    ssl_certificate_key $folder/server.pem;
    add_header X-Request-Id $$request_id always;
    $locations
  }
}
""")


def _nginx(folder: Path, listeners: Sequence[socket.socket]) -> tuple[list[str], dict[str, str]]:
    plain, tls = (listener.getsockname()[1] for listener in listeners)
    locations = "\n".join(map(_location, fixed_responses()))
    config = folder / "nginx.conf"
    config.write_text(_NGINX_CONFIG.substitute(folder=folder, plain=plain, tls=tls, locations=locations))
    # nginx hands its sockets to a new binary in this way: the binary uses them instead of opening new sockets.
    inherited = "".join(f"{listener.fileno()};" for listener in listeners)
    return [str(_NGINX), "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(config)], {"NGINX": inherited}


def _location(response: FixedResponse) -> str:
    body = response.body.decode().replace("\\", "\\\\").replace("'", "\\'").replace(payloads.ASKED, "${id}")
    if response.path.endswith("/"):
        return f"location ~ ^{response.path}(?<id>[A-Za-z0-9_-]+)$ {{ return {response.status} '{body}'; }}"
    return f"location = {response.path} {{ return {response.status} '{body}'; }}"


def _asyncio(listeners: Sequence[socket.socket], folder: Path | None = None) -> tuple[list[str], dict[str, str]]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.responses",
        "--sockets",
        *(str(listener.fileno()) for listener in listeners),
    ]
    return command + (["--certificate", str(folder / "server.pem")] if folder else []), {}
