"""The page "Build an SDK on this one" and the package that it shows are the same."""

from __future__ import annotations

import re
from pathlib import Path

import paymentsdk_foo
import pytest

BLOCK = re.compile(r"<!-- paymentsdk_foo/(\w+)\.py -->\n```python\n(.*?)```\n", re.DOTALL)


def lines(text: str) -> list[str]:
    """Return what stands in *text*, without empty lines: a page has fewer of them."""
    return [line for line in text.splitlines() if line]


@pytest.mark.parametrize("name", ["__init__", "sandbox"])
def test_the_page_is_the_package(name: str, pytestconfig: pytest.Config):
    """Every line of the package stands on the page, in its order, and no other is said to be of it."""
    page = (pytestconfig.rootpath / "docs/how-to/build-an-sdk.md").read_text(encoding="utf-8")
    source = "".join(code for file, code in BLOCK.findall(page) if file == name)

    assert lines(Path(paymentsdk_foo.__file__).with_name(f"{name}.py").read_text(encoding="utf-8")) == lines(source)
