"""``python -m paymentsdk``: the command line, also where a shell does not find the command."""

from __future__ import annotations

import sys

from paymentsdk.cli import main

if __name__ == "__main__":
    sys.exit(main())
