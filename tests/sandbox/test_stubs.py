"""Stubs: endpoints beyond the contract, from a file."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def stubs(tmp_path):
    """Writes a file with stubs, and returns its name."""

    def write(text: str) -> str:
        (tmp_path / "stubs.toml").write_text(text)
        return str(tmp_path / "stubs.toml")

    return write


async def test_a_stub_responds_from_its_template(start, plain_to, stubs):
    """With status, headers, and the values of the path in each text of the body; no token is needed."""
    json_stub = '[[stubs]]\npath = "/v1/payments/{id}"\nbody = { id = "{id}", parts = [1, "{id}!"] }\n'
    text_stub = '[[stubs]]\nmethod = "POST"\npath = "/v1/{a}/{b}/export"\nstatus = 201\nbody = "{a},{b},{ c }"\n'
    empty_stub = '[[stubs]]\nmethod = "DELETE"\npath = "/v1/payments/{id}"\nstatus = 204\n'
    headers = 'headers = { X-Total = "7", Content-Type = "text/csv" }\n'
    sandbox = await start(stubs=stubs(json_stub + text_stub + headers + empty_stub))
    plain = plain_to(sandbox)

    payment = await plain("GET", "/v1/payments/a%20b/", token=None)
    export = await plain("POST", "/v1/x/y/export", {}, token=None)
    gone = await plain("DELETE", "/v1/payments/1", token=None)

    assert (200, {"id": "a b", "parts": [1, "a b!"]}) == (payment.status, payment.json)
    assert (201, b"x,y,{ c }") == (export.status, export.raw)
    assert ["application/json", "text/csv"] == [answer.headers["Content-Type"] for answer in (payment, export)]
    assert "7" == export.headers["X-Total"]
    assert (204, b"") == (gone.status, gone.raw)
    assert [("/v1/payments/1", 204), ("/v1/x/y/export", 201), ("/v1/payments/a%20b/", 200)] == [
        (line["path"], line["status"]) for line in (await plain("GET", "/_sandbox/requests")).json
    ]


@pytest.mark.parametrize("order", [1, -1])
async def test_a_word_goes_before_a_placeholder(start, plain_to, stubs, order):
    """Many interfaces have a search beside the rows; which stub comes first in the file does not matter."""
    texts = [f'[[stubs]]\npath = "/v1/payments/{last}"\nbody = "{last}"\n' for last in ("search", "{id}")]
    plain = plain_to(await start(stubs=stubs("".join(texts[::order]))))

    for last in ("search", "search/", "7", "7/"):
        assert last.strip("/").encode() == (await plain("GET", f"/v1/payments/{last}", token=None)).raw


@pytest.mark.parametrize(("lines", "words"), [
    ('path = "/v1/orders/search"', "is taken by GET /v1/orders/{order_id}: give the stub another path, or "),
    ('path = "/_sandbox/health"', "is taken by GET /_sandbox/health"),
    ('path = "/_sandbox/x/y/z"', "is taken by the control API, /_sandbox"),
    ('path = "/a/{x}"\n[[stubs]]\npath = "/a/{y}"', "line 3: stubs[1]: GET /a/{y} is taken by GET /a/{x}"),
    ('path = "/a/{id}"\nbody = { x = ["{di}"] }', "line 3: stubs[0].body: has {di}, but the placeholders are: id"),
    ('path = "a"', "line 2: stubs[0].path: must have a / before each word"),
    ('path = "/a"\nstatus = 204\nbody = "x"', "line 4: stubs[0].body: cannot go with the status 204"),
    ('path = "/a"\nheaders = { "a b" = "x" }', "line 3: stubs[0].headers.a b: is not a header"),
    ('path = "/a"\nmethod = "HEAD"', "it is one of DELETE, GET, PATCH, POST, PUT"),
    ('paht = "/a"', 'line 2: stubs[0] has no key "paht"; did you mean "path"?'),
])  # fmt: skip
async def test_a_stub_that_cannot_be_is_rejected(start, stubs, tmp_path, lines, words):
    """At the start, with its line and the way out; a database is not left locked."""
    name, db = stubs(f"[[stubs]]\n{lines}\n"), str(tmp_path / "shop.db")

    with pytest.raises(ValueError, match=r"stubs\.toml") as raised:
        await start(stubs=name, db=db)

    assert words in str(raised.value)
    assert await start(db=db)


async def test_the_file_in_the_documentation_works(start, plain_to, stubs):
    """The page has no key that there is not."""
    page = (Path(__file__).parents[2] / "docs/how-to/test-your-code.md").read_text(encoding="utf-8")
    plain = plain_to(
        await start(stubs=stubs("[[stubs]]" + page.partition("```toml\n[[stubs]]")[2].partition("```")[0]))
    )

    assert {"id": "7", "status": "approved"} == (await plain("GET", "/v1/payments/7")).json
    assert {"payment_id": "7"} == (await plain("POST", "/v1/payments/7/refunds", {})).json
