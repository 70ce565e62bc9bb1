"""Templates escape what they are given."""

from __future__ import annotations

import re

import pytest

from paymentsdk.sandbox._pages import views
from paymentsdk.sandbox._pages.views import Markup, join, render


def test_every_value_is_escaped() -> None:
    """For the text of an element and for an attribute in quotes alike."""
    page = render("way.html", url="\"'><script>", words="<b>&amp;</b>", main="")

    assert '<a class="button" href="&quot;&#x27;&gt;&lt;script&gt;">&lt;b&gt;&amp;amp;&lt;/b&gt;</a>\n' == page


def test_markup_is_taken_as_it_is() -> None:
    """What was rendered can be a part of something else, and is not escaped twice."""
    link = render("way.html", url="/", words="A & B", main=Markup(" main"))

    page = render("message.html", title="", text="", ways=join([link, link]))

    assert 2 == page.count('<a class="button main" href="/">A &amp; B</a>')


def test_a_value_that_looks_like_a_placeholder_stays_text() -> None:
    """Nothing in a value is filled in."""
    assert ">$url $$<" in render("way.html", url="/x", words="$url $$", main="")


def test_a_missing_value_is_an_error() -> None:
    """A template never shows its placeholders."""
    with pytest.raises(KeyError):
        render("way.html", url="/")


def test_every_placeholder_of_an_attribute_is_in_quotes() -> None:
    """Escaping protects a value only between quotes: no template leaves them out."""
    files = list((views.PAGES / "templates").iterdir())
    assert files
    for file in files:
        outside_quotes = re.sub(r'"[^"]*"', '""', file.read_text(encoding="utf-8"))
        assert "=$" not in outside_quotes, file.name
