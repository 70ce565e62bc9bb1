"""Makes `benchmarks` importable: it lies beside the package, not in it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
