"""A PostgreSQL server of Debian's packages, and a proxy that can cut its connections."""

from __future__ import annotations

import asyncio
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

#: The folder of Debian's server programs. They are not on the path, since there may be several versions.
_PROGRAMS = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
BIN = next((path for path in _PROGRAMS if (path / "initdb").exists()), None)


class Server:
    """A private server on a free port of this machine. It does not run as root."""

    def __init__(self, folder: Path, fsync: str) -> None:
        self._data = folder / "data"
        self._log = folder / "log"
        self._fsync = fsync
        self._names = itertools.count()
        self.port = free_port()
        self._run("initdb", "--username=test", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")

    def start(self) -> None:
        """Start the server, and wait until it is ready."""
        options = (
            f"-p {self.port} -c fsync={self._fsync} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' "
            "-c max_connections=200"
        )
        self._run("pg_ctl", "start", "--wait", f"--log={self._log}", f"--options={options}")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server; `immediate` is a crash."""
        self._run("pg_ctl", "stop", "--wait", f"--mode={mode}")

    def _run(self, program: str, *options: str) -> None:
        assert BIN is not None
        command = [str(BIN / program), "-D", str(self._data), *options]
        process = subprocess.run(
            command, check=False, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **_user()
        )
        if process.returncode:
            log = self._log.read_text() if self._log.exists() else ""
            raise RuntimeError(f"{program} failed: {process.stderr.decode()}{log[-2000:]}")

    def dsn(self, schema: str = "public") -> str:
        """Return an address of the server; clients with this address create their tables in *schema*."""
        return f"postgresql://test:secret-password@127.0.0.1:{self.port}/postgres?search_path={schema}"

    async def new(self) -> str:
        """Return the address of an empty schema."""
        import asyncpg

        schema = f"test_{next(self._names)}"
        connection = await asyncpg.connect(self.dsn())
        await connection.execute(f"CREATE SCHEMA {schema}")
        await connection.close()
        return self.dsn(schema)


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _user() -> dict[str, object]:
    """Return the options of `subprocess` for the user of the server, which is not root."""
    if os.geteuid():
        return {}
    user = pwd.getpwnam("postgres")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@contextmanager
def running(*, fsync: str = "on") -> Iterator[Server]:
    """A server in a new folder. It ends with the block, and never outlives this process."""
    # Not below the folders of pytest: the user of the server cannot open folders of root.
    folder = Path(tempfile.mkdtemp(prefix="paymentsdk-postgres-"))
    if user := _user():
        os.chown(folder, user["user"], user["group"])
    with _removed_in_the_end(folder):
        server = Server(folder, fsync)
        server.start()
        yield server


@contextmanager
def _removed_in_the_end(folder: Path) -> Iterator[None]:
    """Start a process that stops the server in *folder* and removes it, even if this process is killed."""
    # The pipe only ends when the last process with its other end has ended.
    script = 'cat; "$0" stop -D "$1/data" -m immediate; rm -rf "$1"'
    end, ours = os.pipe()
    watching = subprocess.Popen(
        ["sh", "-c", script, str(BIN and BIN / "pg_ctl"), str(folder)],
        cwd="/",
        stdin=end,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        **_user(),
    )
    os.close(end)
    try:
        yield
    finally:
        os.close(ours)
        watching.wait()


#: The path of Debian's PgBouncer.
BOUNCER = next((path for path in map(Path, ("/usr/sbin/pgbouncer", "/usr/bin/pgbouncer")) if path.exists()), None)


class Pooler:
    """PgBouncer in transaction mode before a server: each transaction may use another connection to the server."""

    def __init__(self, server: Server, port: int) -> None:
        self._server = server
        self._names = itertools.count()
        self.port = port

    async def new(self) -> str:
        """Return the address of an empty database."""
        import asyncpg

        name = f"pooled_{next(self._names)}"
        connection = await asyncpg.connect(self._server.dsn())
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()
        return f"postgresql://test:secret-password@127.0.0.1:{self.port}/{name}"


@contextmanager
def pooler(server: Server, connections: int = 4) -> Iterator[Pooler]:
    """A PgBouncer before *server*, with *connections* connections per database."""
    port, folder = free_port(), Path(tempfile.mkdtemp(prefix="paymentsdk-pgbouncer-"))
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": "transaction",
        "default_pool_size": connections,
        "max_client_conn": 500,
        "logfile": folder / "log",
    }
    lines = ["[databases]", f"* = host=127.0.0.1 port={server.port} user=test", "[pgbouncer]"]
    (folder / "ini").write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in settings.items())]))
    if user := _user():
        os.chown(folder, user["user"], user["group"])
    process = subprocess.Popen(
        [str(BOUNCER), "-q", str(folder / "ini")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **user
    )
    try:
        for _ in range(500):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.01)
        yield Pooler(server, port)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


class Wire:
    """A proxy before a server: a test reads the traffic, and can cut it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        #: Returns whether to cut the connection before this data of the client, or of the server, passes.
        self.cut_request: Callable[[bytes], bool] = lambda data: False
        self.cut_response: Callable[[bytes], bool] = lambda data: False
        self.cuts = 0
        #: Whether the proxy drops all data of the server.
        self.mute = False

    def dsn(self, of: str) -> str:
        """Return the address *of* the server through this proxy."""
        return of.replace(f":{self._port}/", f":{self.port}/")

    def cut(self) -> None:
        """Cut all connections."""
        self.cuts += 1
        for writer in self._writers:
            writer.transport.abort()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client to the server."""
        there, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, to_server}
        try:
            await asyncio.gather(
                self._pass(reader, to_server, "cut_request"), self._pass(there, writer, "cut_response")
            )
        except OSError:
            pass
        finally:
            for end in (writer, to_server):
                end.transport.abort()
            self._writers -= {writer, to_server}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cuts: str) -> None:
        while data := await reader.read(65_536):
            if getattr(self, cuts)(data):
                self.cut()
                return
            if self.mute and cuts == "cut_response":
                continue
            writer.write(data)
            await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def wire_to(server: Server) -> AsyncIterator[Wire]:
    """A proxy before *server*."""
    wire, tasks = Wire(server.port), set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        await wire.accept(reader, writer)

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    wire.port = listening.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        listening.close()
        wire.cut()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listening.wait_closed()
