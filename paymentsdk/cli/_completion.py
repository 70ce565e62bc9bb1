"""``paymentsdk completion``: what completes the words of the command line in a shell."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace

from paymentsdk.errors import install_extra

_HOW = """\
bash and zsh: eval "$(paymentsdk completion bash)"
fish: paymentsdk completion fish | source
"""


def add_arguments(completion: ArgumentParser) -> None:
    """Add what `completion` takes."""
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish")
    completion.epilog = _HOW
    completion.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise ArgumentTypeError(f"to complete words, {install_extra('cli')}") from None
    print(shellcode([options.parser.prog.split()[0]], shell=options.shell))
    return 0
