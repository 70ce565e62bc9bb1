"""`paymentsdk tokens`, and commands that call for one of many sellers, against a sandbox that runs."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from paymentsdk import FileTokenStore, OutcomeUnknown, PaymentsClient, RetryPolicy, SQLiteTokenStore, TokenPair
from paymentsdk.journal import SQLiteJournal
from paymentsdk.sandbox import FaultRule, Sandbox
from tests.journal.platform import order
from tests.postgres import Server

Run = Callable[..., tuple[int, str, str]]
SELLERS = ("shop-1", "shop-2")


class Fleet:
    """Two sellers of one application, whose pairs are in `tokens.db`."""

    def __init__(self, sandbox: Sandbox, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sandbox = sandbox
        self.tenants = dict(
            zip(SELLERS, (sandbox.tenant, sandbox.create_tenant(client_id=sandbox.client_id)), strict=True)
        )
        self.monkeypatch = monkeypatch
        self.run = run

    def exchange(self, account: str, code: str | None = None) -> tuple[int, str, str]:
        """Run `tokens exchange` with a code of the seller, or another one."""
        content = code or self.sandbox.authorize(self.tenants[account])
        self.monkeypatch.setattr(sys, "stdin", io.StringIO(f"{content}\n"))
        return self.run("tokens", "exchange", account)

    def pair(self, account: str) -> TokenPair:
        """Return the pair in the store."""
        pair = asyncio.run(SQLiteTokenStore("tokens.db", account).load())
        assert pair is not None
        return pair

    def save(self, account: str, pair: TokenPair) -> None:
        """Put *pair* into the store."""
        asyncio.run(SQLiteTokenStore("tokens.db", account).save(pair))

    def lose_orders(self) -> None:
        """Create an order for each seller, as a program that is gone before it has the response.

        The program has an account for the first, and a client of its own for the second.
        """
        rule = FaultRule(effect="lose_response_after_commit", operation="orders.create", times=2)
        self.sandbox.faults.add(rule)
        tokens = [self.pair(account).access_token for account in SELLERS]

        async def create() -> None:
            settings = {"base_url": self.sandbox.base_url, "retry": RetryPolicy(attempts=1)}
            async with PaymentsClient(
                journal=SQLiteJournal("payments.db"), accounts={"shop-1": tokens[0]}, **settings
            ) as client:
                for seller in (client.account("shop-1"), client.with_options(access_token=tokens[1])):
                    with pytest.raises(OutcomeUnknown):
                        await seller.orders.create(order(), once="sale")

        asyncio.run(create())


@pytest.fixture
def fleet(sandbox: Sandbox, run: Run, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A sandbox whose application is in the environment, and no token is."""
    monkeypatch.delenv("PAYMENTSDK_ACCESS_TOKEN")
    monkeypatch.setenv("PAYMENTSDK_CLIENT_ID", sandbox.client_id)
    monkeypatch.setenv("PAYMENTSDK_CLIENT_SECRET", sandbox.client_secret)
    monkeypatch.setenv("PAYMENTSDK_TOKENS", "tokens.db")
    return Fleet(sandbox, run, monkeypatch)


def test_a_code_is_exchanged_and_no_token_is_printed(fleet: Fleet) -> None:
    """The pair is in the store, and the output says whose it is and when it ends."""
    code, out, err = fleet.exchange("shop-1")

    assert (0, "") == (code, err)
    assert ["shop-1", fleet.pair("shop-1").access_token.rpartition("-")[2], "ok"] == out.splitlines()[1].split()[:3]
    assert fleet.pair("shop-1").access_token not in out
    assert (1, "shop-2: 400 invalid_grant" in (result := fleet.exchange("shop-2", "TG-wrong"))[2]) == (result[0], True)


@pytest.mark.skipif(os.name == "nt", reason="signals are those of POSIX")
def test_ctrl_c_does_not_lose_the_pair_of_a_code(fleet: Fleet, signaled: Run) -> None:
    """A code is good once: once it is sent, the pair is waited for and saved."""
    fault = fleet.sandbox.faults.add(FaultRule(effect="delay_after_commit", operation="oauth.*", seconds=0.5))
    fleet.run = partial(signaled, lambda: fault.hits)

    with fault:
        code, out, err = fleet.exchange("shop-1")

    assert (0, True, True) == (code, "shop-1" in out, "a code can be used once" in err)
    assert fleet.pair("shop-1").refresh_token


@pytest.mark.skipif(os.name == "nt", reason="signals are those of POSIX")
def test_sigterm_does_not_lose_the_pair_of_a_refresh(fleet: Fleet, signaled: Run) -> None:
    """A scheduler ends a job like that; the refresh token that it has sent is spent."""
    for account in SELLERS:
        fleet.exchange(account)
    fleet.lose_orders()
    fleet.save("shop-1", structs.replace(fleet.pair("shop-1"), expires_at=0.0))
    before = fleet.pair("shop-1")

    with fleet.sandbox.faults.add(FaultRule(effect="delay_after_commit", operation="oauth.*", seconds=0.5)) as fault:
        assert 130 == signaled(lambda: fault.hits, "journal", "recover", number=signal.SIGTERM)[0]

    assert before.refresh_token != fleet.pair("shop-1").refresh_token


def test_a_code_of_another_seller_replaces_nothing(fleet: Fleet) -> None:
    """Else the calls for one seller would be made for another."""
    fleet.exchange("shop-1")
    before = fleet.pair("shop-1")
    code, _, err = fleet.exchange("shop-1", fleet.sandbox.authorize(fleet.tenants["shop-2"]))

    assert (1, True) == (code, "choose another name" in err)
    assert before.access_token == fleet.pair("shop-1").access_token


def test_a_list_says_who_has_to_authorize_again_and_by_when(fleet: Fleet) -> None:
    """A pair without a refresh token ends with its access token; one in its last sixth is due."""
    now = time.time()
    fleet.save("shop-1", TokenPair(access_token="TEST-secret", expires_at=now + 86_400, issued_at=now))
    live = {"refresh_token": "TG-secret", "issued_at": now - 1000}
    fleet.save("shop-2", TokenPair(access_token="TEST-secret", expires_at=now + 100, **live))
    fleet.save("shop-3", TokenPair(access_token="TEST-secret", expires_at=now + 86_400, **live))

    asyncio.run(
        SQLiteTokenStore("tokens.db", "shop-4", seal=lambda _: b"sealed", unseal=bytes).save(fleet.pair("shop-3"))
    )

    code, out, _ = fleet.run("tokens", "list", "--json")
    states = {row["account"]: row["state"] for row in json.loads(out)}

    assert 0 == code
    expected = {"shop-1": "authorize again", "shop-2": "refresh due", "shop-3": "ok", "shop-4": "unreadable"}
    assert expected == states
    assert ["account", "seller", "state", "expires"] == [*json.loads(out)[0]]
    assert "secret" not in out + fleet.run("tokens", "list")[1]
    Path("folder").mkdir()
    Path("folder/shop-4.json").write_text("damaged", encoding="utf-8")
    code, _, err = fleet.run("tokens", "refresh", "--tokens", "folder")
    assert (1, True) == (code, err.startswith("paymentsdk: shop-4: --tokens: shop-4: folder has no token pair for it,"))
    fleet.monkeypatch.setenv("PAYMENTSDK_TOKENS", "folder")
    complaint = "paymentsdk: ACCOUNT: '../x' cannot be the name of a file in folder\n"
    assert (1, "", complaint) == fleet.exchange("../x", "TG-1")


def test_a_refresh_keeps_the_new_pair(fleet: Fleet) -> None:
    """Of the named accounts, or of those that are due; who must authorize again is named, and the code is 1."""
    fleet.exchange("shop-1")
    fleet.exchange("shop-2")
    before = fleet.pair("shop-1")
    assert (0, "no token is due, of 2 accounts\n") == fleet.run("tokens", "refresh")[:2]
    assert ["shop-1"] == [row["account"] for row in json.loads(fleet.run("tokens", "refresh", "shop-1", "--json")[1])]
    complaint = "ACCOUNT: tokens.db has no account 'shop-9'; did you mean shop-2?; `paymentsdk tokens list` shows all"
    assert (1, "", f"paymentsdk: {complaint}\n") == fleet.run("tokens", "refresh", "shop-9")
    assert before.access_token != fleet.pair("shop-1").access_token

    fleet.save("shop-2", TokenPair(access_token="TEST-old", refresh_token="TG-spent", expires_at=time.time() - 1))
    code, out, err = fleet.run("tokens", "refresh")

    assert 1 == code
    assert [["shop-2", "authorize", "again"]] == [line.split()[:3] for line in out.splitlines()[1:]]
    assert err.startswith("paymentsdk: shop-2: 400 invalid_grant")
    assert "TG-spent" not in out + err

    fleet.monkeypatch.setenv("PAYMENTSDK_CLIENT_SECRET", "wrong")
    code, out, _ = fleet.run("tokens", "refresh", "shop-1", "--json")
    assert (1, ["ok"]) == (code, [row["state"] for row in json.loads(out)])  # The pair is as good as before.


@pytest.mark.parametrize("name", ["TOKENS", "CLIENT_ID", "CLIENT_SECRET"])
def test_a_missing_variable_is_named(fleet: Fleet, name: str) -> None:
    """An exchange needs all of them, and a code."""
    code, _, err = fleet.exchange("shop-1", " ")
    assert (2, True) == (code, err.endswith("exchange: error: stdin has no authorization code\n"))
    fleet.monkeypatch.delenv(f"PAYMENTSDK_{name}")
    complaint = f"PAYMENTSDK_{name}: is not set; set it to the value of your application\n"
    if name == "TOKENS":
        complaint = "error: name the token store with --tokens, or PAYMENTSDK_TOKENS\n"

    code, _, err = fleet.exchange("shop-1")

    assert (2 if name == "TOKENS" else 1, True) == (code, err.endswith(complaint))


@pytest.mark.parametrize("source", ["database", "folder", "toml with a refresh token"])
def test_a_command_calls_for_one_account(fleet: Fleet, source: str) -> None:
    """Its credentials are in a token store or in a file; a refresh token is used where the new one is kept."""
    for account in SELLERS:
        fleet.exchange(account)
    pair = fleet.pair("shop-2")
    options: tuple[str, ...] = ()
    match source:
        case "folder":
            Path("folder").mkdir()
            asyncio.run(FileTokenStore("folder/shop-2.json").save(pair))
            options = ("--tokens", "folder")
        case "toml with a refresh token":
            Path("accounts.toml").write_text(f'[shop-2]\nrefresh_token = "{pair.refresh_token}"', encoding="utf-8")
            options = ("--accounts", "accounts.toml", "--tokens", "new.db")

    for _ in range(2):  # A refresh token is spent by the first.
        code, out, err = fleet.run("plans", "search", "--json", "--account", "shop-2", *options)
        assert (0, "") == (code, err)
        assert pair.access_token.rpartition("-")[2] == str(json.loads(out)["collector_id"])


@pytest.mark.parametrize(
    ("arguments", "content", "complaint"),
    [
        ((), "", "there is no token store tokens.db; `paymentsdk tokens exchange` creates one"),
        (("--accounts", "a.toml"), 'shop-2 = "TEST-x"', "a.toml has no account 'shop-1'; did you mean shop-2?"),
        (("--accounts", "a.toml"), "", "--accounts: a.toml has no account\n"),
        (("--accounts", "a.toml"), "[shop-1]\n", "a.toml: shop-1: give access_token or refresh_token"),
        (("--accounts", "a.toml"), 'shop-1 = "TEST-x', "a.toml is not valid TOML such as"),
        (("--accounts", "a.toml"), 'shop-1 = "TEST x"', "a.toml: shop-1: must be visible ASCII"),
        (("--accounts", "a.toml"), "[shop-1]\ntoken = 1", "unknown field `token`; its members are access_token, "),
        (("--accounts", "a.json"), "[]", 'a.json is not a JSON object such as {"shop-1": "TEST-..."}'),
    ],
)
def test_a_wrong_source_is_one_sentence(fleet: Fleet, arguments: tuple[str, ...], content: str, complaint: str) -> None:
    """With its place and the way out, and without a token."""
    Path((*arguments, "a.toml", "a.toml")[1]).write_text(content, encoding="utf-8")
    code, out, err = fleet.run("plans", "search", "--account", "shop-1", *arguments)

    assert (2, "", 1) == (code, out, err.count("\n"))
    assert err.startswith("paymentsdk: shop-1: --")
    assert complaint in err
    assert "TEST-x" not in err


def test_a_refresh_token_in_a_file_is_not_spent_without_a_store(fleet: Fleet) -> None:
    """The new one would be lost with the process."""
    fleet.monkeypatch.delenv("PAYMENTSDK_TOKENS")
    Path("a.toml").write_text('[shop-1]\nrefresh_token = "TG-x"', encoding="utf-8")
    code, _, err = fleet.run("plans", "search", "--account", "shop-1", "--accounts", "a.toml")

    assert (2, True) == (code, "name a token store that keeps the new one with --tokens" in err)


@pytest.mark.parametrize("name", ["", "ação"])
def test_a_name_that_no_account_has(fleet: Fleet, name: str) -> None:
    """A variable that is not set must not call for the seller in the environment."""
    fleet.monkeypatch.setenv("PAYMENTSDK_ACCESS_TOKEN", fleet.sandbox.access_token)
    for arguments in (("plans", "search", "--account", name), ("tokens", "exchange", name)):
        code, out, err = fleet.run(*arguments)
        assert (2, "", True) == (code, out, f"{name!r} is not an account name" in err)

    Path("a.json").write_text(json.dumps({name: "TEST-x"}), encoding="utf-8")
    code, _, err = fleet.run("plans", "search", "--account", "shop-1", "--accounts", "a.json")
    assert (2, True) == (code, f"--accounts: a.json: {name!r} is not an account name" in err)


def test_tokens_in_postgres(fleet: Fleet, postgres: Server) -> None:
    """The variable has the address: its password is never shown."""
    fleet.monkeypatch.setenv("PAYMENTSDK_TOKENS", asyncio.run(postgres.new()))
    assert 0 == fleet.exchange("shop-1")[0]

    assert ["shop-1"] == [row["account"] for row in json.loads(fleet.run("tokens", "list", "--json")[1])]
    assert 0 == fleet.run("tokens", "refresh", "shop-1")[0]
    assert 0 == fleet.run("plans", "search", "--account", "shop-1")[0]
    code, _, err = fleet.run("plans", "search", "--account", "shop-2")
    assert (2, True) == (code, "the token store in PostgreSQL has no account 'shop-2'; did you mean shop-1?" in err)


def test_a_recovery_finishes_the_records_of_all_sellers(fleet: Fleet) -> None:
    """The program has accounts, or a client for each seller."""
    for account in SELLERS:
        fleet.exchange(account)
    fleet.lose_orders()

    code, out, _ = fleet.run("journal", "recover")

    assert (0, "     2 done\nno record is open\n") == (code, out)
    assert 2 == [entry.kind for entry in fleet.sandbox.ledger()].count("order_created")


def test_a_reconciliation_reads_all_sellers_of_the_store(fleet: Fleet) -> None:
    """A seller whose pair is dead is set aside, and named."""
    fleet.exchange("shop-1")
    fleet.save("shop-2", TokenPair(access_token="TEST-old", refresh_token="TG-spent", expires_at=time.time() - 1))
    Path("book.csv").write_text("account,reference,paid\n", encoding="utf-8")

    code, out, _ = fleet.run("reconcile", "book.csv", "--out", "run")

    assert (5, True) == (code, "Not read: shop-2: 400 invalid_grant" in out)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("plans", "search", "--colums", "id"), "--columns"),
        (("plans", "search", "--colums=id"), "--columns"),
        (("plans", "serch"), "search"),
        (("planz",), "plans"),
        (("tokens", "lst"), "list"),
    ],
)
def test_a_mistyped_word_is_recognized(run: Run, arguments: tuple[str, ...], meant: str) -> None:
    """The error says which option or command is close to it."""
    code, _, err = run(*arguments)

    assert (2, True) == (code, err.endswith(f"; did you mean {meant}?\n"))
