"""A seed file: what a sandbox begins with, and how a mistake in the file is named."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

SEED = """\
# A shop, and a seller from elsewhere.
[policies]
cancel_from = "any"
page_size = 2

[clock]
frozen_at = 2026-01-31T12:00:00Z

[[tenants]]
access_token = "TEST-ci-7"
external_pos_ids = [
  "TILL-1",
  "TILL-2",
]
policies = { max_page_size = 5 }

  [[tenants.plans]]
  reason = "Gold"
  auto_recurring = { transaction_amount = 19.99 }

  [[tenants.webhooks]]
  url = "http://127.0.0.1:9/hook"

[[tenants]]
access_token = "TEST-ci-8"
country = "BR"

[[faults]]
effect = "rate_limit"
operation = "orders.get"
tenant = 8
probability = 1.0
"""


@pytest.fixture
def seed_file(tmp_path):
    """Writes the seed file with a change, and returns its name."""

    def write(old: str = "", new: str = "") -> str:
        assert old in SEED
        (tmp_path / "seed.toml").write_text(SEED.replace(old, new, 1) if old else SEED)
        return str(tmp_path / "seed.toml")

    return write


async def test_a_sandbox_begins_with_what_the_file_says(start, plain_to, data, seed_file):
    """Sellers with tokens and points of sale, plans, webhooks, policies, faults, and the clock."""
    sandbox = await start(seed_file=seed_file())
    plain = plain_to(sandbox)
    order = data(config={"qr": {"external_pos_id": "TILL-2", "mode": "dynamic"}})

    response = await plain("POST", "/v1/orders", order, key="k", token="TEST-ci-7")
    limited = await plain("GET", f"/v1/orders/{response.json['id']}", token="TEST-ci-8")
    plans = await plain("GET", "/preapproval_plan/search?q=Gold", token="TEST-ci-7")

    created = response.json
    assert (201, "7", "2026-01-31T12:00:00.000Z") == (response.status, created["user_id"], created["created_date"])
    assert (429, 1) == (limited.status, plans.json["paging"]["total"])
    assert 19.99 == plans.json["results"][0]["auto_recurring"]["transaction_amount"]
    assert ("any", 2) == (sandbox.policies.cancel_from, sandbox.policies.page_size)
    assert ([7, 8], [7]) == (
        [tenant["user_id"] for tenant in (await plain("GET", "/_sandbox/tenants")).json],
        [webhook.tenant for webhook in sandbox.webhooks.list()],
    )


async def test_arguments_win_over_the_file(start, seed_file):
    """So one file serves several runs."""
    moment = datetime(2027, 1, 1, tzinfo=UTC)
    options = {"frozen_at": moment, "policies": {"page_size": 9}, "tenant": {"access_token": "TEST-other"}}

    sandbox = await start(seed_file=seed_file(), **options)

    assert ("TEST-other", ("TILL-1", "TILL-2")) == (sandbox.access_token, sandbox.tenant.external_pos_ids)
    assert (9, "any", moment) == (sandbox.policies.page_size, sandbox.policies.cancel_from, sandbox.clock.now())


async def test_a_database_gets_the_sellers_once(start, seed_file, tmp_path):
    """At the next start they are there, with what they have; the faults are in force again."""
    for _ in range(2):
        sandbox = await start(seed_file=seed_file(), db=str(tmp_path / "shop.db"))
        counts = [len(sandbox.webhooks.list()), len(sandbox.faults.list())]
        assert ("TEST-ci-7", "BR", [1, 1]) == (sandbox.access_token, sandbox.find_tenant(8).country, counts)
        await sandbox.stop()


@pytest.mark.parametrize(("old", "new", "words"), [
    ("cancel_from", "cancle_from", 'line 3: policies has no key "cancle_from"; did you mean "cancel_from"?'),
    ('"any"', '"all"', "line 3: policies.cancel_from: Invalid enum value 'all'"),
    ("[clock]", "[clocks]", 'line 6: the file has no key "clocks"; did you mean "clock"?'),
    ("12:00:00Z", "12:00:00", "line 7: clock.frozen_at: Expected `datetime` with a timezone"),
    ("reason", "raison", 'line 18: tenants[0].plans[0] has no key "raison"; did you mean "reason"?'),
    ('  reason = "Gold"\n', "", "line 17: tenants[0].plans[0]: Object missing required field `reason`"),
    ("19.99", "19.999", "line 19: tenants[0].plans[0].auto_recurring: an amount has two decimals or none"),
    ("ci-8", "ci-7", "line 25: tenants[1].access_token: belongs to seller 7"),
    ("tenant = 8", "tenant = 'x'", "line 31: faults[0].tenant: Expected `int | null`, got `str`"),
    ("[policies]", "[policies", ": Expected ']' at the end of a table declaration (at line 2, column 10)"),
])  # fmt: skip
async def test_a_mistake_is_named_with_its_line_and_key(start, seed_file, old, new, words):
    """And with the word that was meant, if there is one like it."""
    name = seed_file(old, new)
    with pytest.raises(ValueError, match=r"seed\.toml") as raised:
        await start(seed_file=name)

    assert str(raised.value).startswith(name)
    assert words in str(raised.value)


async def test_a_file_is_followed_whole_or_not_at_all(start, seed_file, tmp_path):
    """If a seller cannot be made, none of the others is: the next start, with a better file, makes all of them."""
    with pytest.raises(ValueError, match=r"tenants\[1\]"):
        await start(seed_file=seed_file("ci-8", "ci-7"), db=str(tmp_path / "shop.db"))
    sandbox = await start(seed_file=seed_file(), db=str(tmp_path / "shop.db"))

    assert [7] == [webhook.tenant for webhook in sandbox.webhooks.list()]
    assert "BR" == sandbox.find_tenant(8).country


async def test_the_file_in_the_documentation_works(start, tmp_path):
    """The page has no key that there is not."""
    page = (Path(__file__).parents[2] / "docs/how-to/test-your-code.md").read_text(encoding="utf-8")
    (tmp_path / "shop.toml").write_text("[policies]" + page.partition("```toml\n[policies]")[2].partition("```")[0])

    sandbox = await start(seed_file=str(tmp_path / "shop.toml"))

    assert (7, 1, 1) == (sandbox.tenant.user_id, len(sandbox.webhooks.list()), len(sandbox.faults.list()))
