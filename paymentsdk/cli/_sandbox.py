"""``paymentsdk sandbox``: run the platform on localhost, until Ctrl-C or until a command has ended."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import socket
import subprocess
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from paymentsdk._files import whole
from paymentsdk.cli._control import DEFAULT_HOST, DEFAULT_PORT, add_control
from paymentsdk.cli._output import say
from paymentsdk.cli._parsing import DONE, Commands, add_parser, file, pair, pairs
from paymentsdk.sandbox import Clock, Sandbox, SandboxInfo
from paymentsdk.sandbox._seed import InvalidFile

_EXAMPLES = """\
examples:
  paymentsdk sandbox --db shop.db --policy cancel_from=any
  paymentsdk sandbox --token TEST-ci exec -- npm test
  paymentsdk sandbox pay POS001
  paymentsdk sandbox advance PT20M
  paymentsdk sandbox faults add reset operation=orders.create times=1
"""
#: The options of the first seller, with the field that each sets and its help.
_PINNED = {
    "token": ("access_token", "fixed access token of the first seller, such as TEST-ci"),
    "client_id": ("client_id", "client id of the first seller's application"),
    "client_secret": ("client_secret", "client secret of that application"),
    "pos": ("external_pos_ids", "point of sale of the first seller"),
}
#: The beginning of a ready file; other files are not overwritten.
_READY = "BASE_URL="
#: The exit code of shells for an unknown command, and the number that they add to that of a signal.
_NO_COMMAND, _SIGNALLED = 127, 128
_ENV = [field.name for field in msgspec.structs.fields(SandboxInfo)]


def add_arguments(sandbox: ArgumentParser) -> None:
    """Add the arguments of `sandbox`, and its nested commands."""
    sandbox.epilog = _EXAMPLES
    sandbox.usage = "%(prog)s [OPTIONS] [COMMAND ...]"
    add = sandbox.add_argument
    db = "keep the state in FILE, except faults and the list of requests (default: in memory)"
    line = "print address and credentials as one line of JSON; the authorization code in it lasts 10 minutes"
    policy = "override a policy for this run (takes precedence over policies stored in --db)"
    public = "allow a --host that other machines can reach; they have full control of the sandbox"
    hosts = "allow deliveries of notifications to HOST, besides this machine; can be repeated"
    links = "the address at which buyers reach the sandbox, for links and QR codes"
    seed_file = "begin with the sellers, plans, webhooks, policies, faults and clock in a TOML file"
    stubs = "add endpoints beyond the contract, with the responses in a TOML file"
    beyond = "serve reads that the contract does not have: customers, preferences, merchant orders, payments, orders"
    ready = "write address and credentials to FILE as NAME=VALUE lines once the port is open; remove it at the end"
    settings = [
        add("--host", default=DEFAULT_HOST, help=f"address to listen on (default: {DEFAULT_HOST})"),
        add("--port", type=int, help=f"port; 0 for any free port (default: {DEFAULT_PORT})"),
        add("--db", type=file, metavar="FILE", help=db),
        add("--json", action="store_true", dest="as_json", help=line),
        add("--ready-file", type=file, metavar="FILE", help=ready),
        add("--seed-file", type=file, metavar="FILE", help=seed_file),
        add("--stubs", type=file, metavar="FILE", help=stubs),
        add("--beyond", choices=["reads"], help=beyond),
        add("--seed", type=int, metavar="N", help="make ids and random choices repeatable"),
        add("--policy", type=pair, action="append", default=[], dest="policies", metavar="NAME=VALUE", help=policy),
        add("--frozen", action="store_true", help="stop the clock; it moves only when it is advanced"),
        add("--public", action="store_true", help=public),
        add("--public-url", metavar="URL", help=links),
        add("--allow-host", action="append", default=[], dest="allow_hosts", metavar="HOST", help=hosts),
    ]
    for name, (_, meaning) in _PINNED.items():
        variable = f"PAYMENTSDK_SANDBOX_{name.upper()}"
        pinned_help, default = f"{meaning} (default: {variable})", os.environ.get(variable) or None
        settings.append(add(_option(name), default=default, metavar=name.upper(), help=pinned_help))
    sandbox.set_defaults(run=_run, settings=settings)
    commands = sandbox.add_subparsers(title="commands", metavar="COMMAND", prog=sandbox.prog)
    _add_exec(commands)
    add_control(commands)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _run(options: Namespace) -> int:
    """Run the sandbox until SIGINT or SIGTERM, print its address when it listens, and return the exit code.

    Raises:
        ArgumentTypeError: An option has an invalid value, such as an unknown policy.
        OSError: The host, the port or a file cannot be used.
    """
    ready_file = Path(options.ready_file) if options.ready_file else None
    if ready_file:
        _clear(ready_file)
    with _in_words_of(options):
        asyncio.run(_listen(_make(options, DEFAULT_PORT), ready_file, as_json=options.as_json))
    return DONE


def _make(options: Namespace, port: int) -> Sandbox:
    """Return a sandbox with *options*, on *port* unless they name another."""
    settings: dict[str, Any] = {setting.dest: getattr(options, setting.dest) for setting in options.settings}
    del settings["as_json"], settings["ready_file"]
    settings["port"] = port if options.port is None else options.port
    settings["policies"] = pairs(options.policies)
    pinned = {field: settings.pop(name) for name, (field, _) in _PINNED.items()}
    if pinned["external_pos_ids"]:
        pinned["external_pos_ids"] = (pinned["external_pos_ids"],)
    return Sandbox(**settings, tenant={name: value for name, value in pinned.items() if value})


@contextmanager
def _in_words_of(options: Namespace) -> Iterator[None]:
    """Raise errors of a start in the words of the command line."""
    try:
        yield
    except InvalidFile as error:
        raise ArgumentTypeError(str(error)) from None
    except ValueError as error:
        words = str(error).replace("`public`", "--public").replace("public_url", "--public-url").replace("[0]", "")
        for name, (field, _) in _PINNED.items():
            words = words.replace(f"$.{field}", _option(name)).replace(field, _option(name))
        raise ArgumentTypeError(words) from None
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        port = DEFAULT_PORT if options.port is None else options.port
        raise OSError(f"port {port} is in use; choose another with --port, or 0 for any that is free") from None


async def _listen(sandbox: Sandbox, ready_file: Path | None, *, as_json: bool) -> None:
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # On Windows.
            asyncio.get_running_loop().add_signal_handler(number, over.set)
    async with sandbox:
        info = sandbox.describe()
        with _ready(ready_file, info) if ready_file else nullcontext():
            print(msgspec.json.encode(info).decode() if as_json else _for_people(info, sandbox.clock), flush=True)
            with suppress(asyncio.CancelledError):  # asyncio raises this at a SIGINT that the loop does not handle.
                await over.wait()


def _for_people(info: SandboxInfo, clock: Clock) -> str:
    # A clock that was moved or frozen is saved in the file, and would be a surprise on another day.
    still = ", and it stands still" if clock.frozen else ""
    time = f"  clock                 {clock.now():%Y-%m-%d %H:%M:%S} UTC{still}\n"
    return f"""\
The sandbox listens on {info.base_url}. Ctrl-C ends it.

export PAYMENTSDK_BASE_URL={info.base_url}
export PAYMENTSDK_ACCESS_TOKEN={info.access_token}
export PAYMENTSDK_CLIENT_ID={info.client_id}
export PAYMENTSDK_CLIENT_SECRET={info.client_secret}

  point of sale         {info.external_pos_id}
  plan                  {info.plan_id}
  authorization code    {info.authorization_code}  (10 minutes)
  refresh token         {info.refresh_token}
  dashboard             {info.base_url}/
{time if clock.frozen or clock.state.ahead else ""}"""


# --- for programs in any language --------------------------------------------------------------------------------


def _variables(info: SandboxInfo) -> Mapping[str, str]:
    """Return the variables for a program's environment or a ready file."""
    members = {f"PAYMENTSDK_{name.upper()}": value for name, value in msgspec.structs.asdict(info).items()}
    return {"BASE_URL": info.base_url, "ACCESS_TOKEN": info.access_token, **members}


def _clear(ready_file: Path) -> None:
    """Remove the ready file of a sandbox that was killed.

    Raises:
        ArgumentTypeError: The path is not a ready file, or the file belongs to a sandbox that still runs.
    """
    if not ready_file.exists():
        return
    if not (ready_file.is_file() and ready_file.read_bytes().startswith(_READY.encode())):
        raise ArgumentTypeError(f"--ready-file: {ready_file} is not a ready file; name a file that does not exist yet")
    with suppress(OSError, ValueError):
        address = urlsplit(ready_file.read_text(encoding="utf-8").partition("\n")[0].removeprefix(_READY))
        with socket.create_connection((address.hostname or "", address.port or 0), timeout=1):
            words = f"{ready_file} belongs to the running sandbox at {address.geturl()}; end it, or name another file"
            raise ArgumentTypeError(f"--ready-file: {words}")
    ready_file.unlink()


@contextmanager
def _ready(ready_file: Path, info: SandboxInfo) -> Iterator[None]:
    """Write the ready file, and remove it at the end."""
    with whole(ready_file, private=True) as unfinished:
        unfinished.write_text(
            "".join(f"{name}={value}\n" for name, value in _variables(info).items()), encoding="utf-8"
        )
    try:
        yield
    finally:
        ready_file.unlink(missing_ok=True)


def _add_exec(commands: Commands) -> None:
    summary = "start a sandbox on a free port, run a command with its address and token, and return its exit code"
    about = "The environment of the command has BASE_URL, ACCESS_TOKEN, and:"
    epilog = "\n  ".join([about, *(f"PAYMENTSDK_{name.upper()}" for name in _ENV)])
    parser = add_parser(commands, "exec", summary, _exec, epilog=epilog)
    parser.usage = "paymentsdk sandbox [OPTIONS] exec [--env NAME=MEMBER] -- COMMAND [ARGUMENT ...]"
    env_help = "add a variable, such as API_URL=base_url; can be repeated"
    parser.add_argument("--env", type=_variable, action="append", default=[], metavar="NAME=MEMBER", help=env_help)
    parser.add_argument("words", nargs="+", metavar="COMMAND", help="the program and its arguments, after --")


def _variable(text: str) -> tuple[str, str]:
    name, member = pair(text)
    if member not in _ENV:
        raise ArgumentTypeError(f"{member!r} is not one of {', '.join(_ENV)}")
    return name, member


def _exec(options: Namespace) -> int:
    """Run the command in *options* with a sandbox, and return its exit code.

    Raises:
        ArgumentTypeError: An option has an invalid value, or cannot be combined with a command.
        OSError: The host, the port or a file cannot be used.
    """
    if options.as_json or options.ready_file:
        reason = "cannot be combined with exec, which passes address and credentials in the environment"
        raise ArgumentTypeError(f"--json and --ready-file {reason}")
    name, *arguments = options.words
    program = shutil.which(name)
    if program is None:
        advice = "name a program on the PATH, or `sh -c '...'` for a line of shell"
        say(f"{options.parser.prog}: there is no command {name}; {advice}")
        return _NO_COMMAND
    with _in_words_of(options), _make(options, 0).in_thread() as sandbox:
        info = sandbox.describe()
        names = {variable: getattr(info, member) for variable, member in pairs(options.env).items()}
        code = _run_command([program, *arguments], {**os.environ, **_variables(info), **names})
    return code if code >= 0 else _SIGNALLED - code


def _run_command(command: list[str], environment: Mapping[str, str]) -> int:
    """Run a command, forward the signals of this process to it, and return its exit code."""
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _: object) -> None:
        if child is None:
            early.append(number)
        elif number != signal.SIGINT or not _in_foreground():
            child.send_signal(number)

    names = ("SIGINT", "SIGTERM", "SIGHUP")
    before = {number: signal.signal(number, forward) for name in names if (number := getattr(signal, name, None))}
    try:
        with subprocess.Popen(command, env=environment) as child:  # noqa: S603 - the user's own command
            for number in early:
                child.send_signal(number)
            return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Return whether a terminal sends Ctrl-C to the command by itself. A second Ctrl-C would cut its clean-up short."""
    if os.name == "nt":
        return True
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:  # The process has no terminal.
        return False
