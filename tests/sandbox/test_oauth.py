"""Tokens: codes, refresh tokens, scopes, and how long each lives."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args, get_type_hints
from urllib.parse import urlencode

import pytest

from paymentsdk import (
    AuthenticationFailed,
    BadRequest,
    PaymentsClient,
    PermissionDenied,
    ReauthorizationRequired,
    RefreshFailed,
    RefreshingToken,
    RequestInvalid,
    RetryPolicy,
    TokenPair,
)
from paymentsdk.resources.oauth import GRANTED_BY, TOKEN, TokenRequest
from paymentsdk.sandbox import FaultRule


def test_every_type_of_grant_has_a_secret():
    """A type that is declared says where its secret is, which is hidden."""
    types = set(get_args(get_type_hints(TokenRequest)["grant_type"]))

    assert types == set(GRANTED_BY)
    assert set(GRANTED_BY.values()) <= TokenRequest.__secrets__


@pytest.mark.parametrize("grant_type", ["password", ["refresh_token"]])
def test_another_type_of_grant_is_told_which_there_are(grant_type):
    """Whatever else is in the request: the type is what is wrong with it."""
    request = TokenRequest(client_id="1", client_secret="s", grant_type=grant_type, code="c")

    with pytest.raises(RequestInvalid, match=r"\$\.grant_type"):
        TOKEN.encoder.encode(request)


async def test_a_code_gives_a_token(client, sandbox):
    """Every member of the contract, and an access token that says who it is for."""
    token = await client.oauth.exchange_code(sandbox.authorization_code)
    kind, client_id, created, _, user_id = token.access_token.split("-")

    assert ("bearer", 15_552_000, "offline_access read write", False) == (
        token.token_type,
        token.expires_in,
        token.scope,
        token.live_mode,
    )
    assert (sandbox.tenant.user_id, sandbox.tenant.public_key) == (token.user_id, token.public_key)
    assert ("TEST", sandbox.client_id, str(sandbox.tenant.user_id)) == (kind, client_id, user_id)
    assert f"{sandbox.clock.now():%m%d%H}" == created
    assert token.refresh_token
    async with client.with_options(access_token=token.access_token) as second_client:
        assert await second_client.plans.get(sandbox.plan_id)


async def test_the_first_sellers_token_has_the_same_structure(sandbox):
    """`TEST-<client_id>-<MMddHH>-<hash>-<user_id>`."""
    assert ["TEST", sandbox.client_id] == sandbox.access_token.split("-")[:2]


async def test_a_code_is_good_once(client, sandbox):
    """The second exchange is `invalid_grant`."""
    await client.oauth.exchange_code(sandbox.authorization_code)
    with pytest.raises((BadRequest, ReauthorizationRequired)) as rejected:
        await client.oauth.exchange_code(sandbox.authorization_code)

    assert "invalid_grant" == rejected.value.code


@pytest.mark.parametrize(("milliseconds", "is_accepted"), [(-1, True), (0, False)])
async def test_a_code_is_good_for_ten_minutes(client, sandbox, milliseconds, is_accepted):
    """To the millisecond, by the sandbox's clock."""
    sandbox.clock.advance(timedelta(minutes=10, milliseconds=milliseconds))

    if is_accepted:
        assert await client.oauth.exchange_code(sandbox.authorization_code)
    else:
        with pytest.raises((BadRequest, ReauthorizationRequired)) as rejected:
            await client.oauth.exchange_code(sandbox.authorization_code)
        assert "invalid_grant" == rejected.value.code


async def test_a_wrong_secret_of_the_application_spends_no_grant(client, sandbox):
    """`invalid_client` ends the refreshes of a program, and the refresh token is good once its secret is right."""
    with pytest.raises(ReauthorizationRequired) as rejected:
        await client.oauth.refresh(sandbox.refresh_token, client_id=sandbox.client_id, client_secret="wrong")
    token = await client.oauth.refresh(sandbox.refresh_token)

    assert ("invalid_client", "bearer") == (rejected.value.code, token.token_type)


async def test_a_seller_can_consent_again(client, sandbox):
    """A new code, as often as a test needs one."""
    for _ in range(2):
        assert await client.oauth.exchange_code(sandbox.authorize())


async def test_a_refresh_token_is_spent_by_its_use(client, sandbox):
    """Every refresh brings a new pair; the old refresh token is `invalid_grant`, the new one works."""
    first = await client.oauth.refresh(sandbox.refresh_token)
    second = await client.oauth.refresh(first.refresh_token)
    with pytest.raises((BadRequest, ReauthorizationRequired)) as rejected:
        await client.oauth.refresh(sandbox.refresh_token)

    assert 3 == len({sandbox.refresh_token, first.refresh_token, second.refresh_token})
    assert first.access_token != second.access_token
    assert "invalid_grant" == rejected.value.code


async def test_a_refresh_token_can_be_kept_under_the_other_policy(start, connect):
    """`refresh_tokens=keep`: the same one, again and again."""
    sandbox = await start(policies={"refresh_tokens": "keep"})
    async with connect(sandbox) as client:
        tokens = [await client.oauth.refresh(sandbox.refresh_token) for _ in range(2)]

    assert {sandbox.refresh_token} == {token.refresh_token for token in tokens}


async def test_a_token_lives_180_days(client, sandbox):
    """To the millisecond; then every operation says that it is not valid."""
    sandbox.clock.advance(timedelta(days=180, milliseconds=-1))
    assert await client.plans.get(sandbox.plan_id)
    sandbox.clock.advance(timedelta(milliseconds=1))
    with pytest.raises(AuthenticationFailed) as rejected:
        await client.plans.get(sandbox.plan_id)

    assert "unauthorized" == rejected.value.code


async def test_the_token_of_the_sandbox_can_be_used_at_any_time(plain, sandbox):
    """However far its clock was moved: Python, the control API and what is described have one, and it is good."""
    first = sandbox.access_token
    sandbox.clock.advance("P181D")

    state = (await plain("GET", "/_sandbox/state")).json

    assert 200 == (await plain("GET", "/preapproval_plan/search")).status
    assert {sandbox.access_token} == {sandbox.describe().access_token, state["sandbox"]["access_token"]} != {first}


async def test_another_seller_is_described_with_credentials_that_can_be_used(client, sandbox):
    """As the first seller is, whose token is refreshed in the same way."""
    second_seller = sandbox.create_tenant()
    sandbox.clock.advance("P181D")

    described = sandbox.describe(second_seller)

    assert second_seller.access_token != described.access_token == sandbox.describe(second_seller).access_token
    await client.with_options(access_token=described.access_token).plans.get(second_seller.plan_id)


async def test_a_sandbox_that_has_stopped_still_says_its_token(start):
    """Whoever writes down what was used needs no file for it, which is closed by then."""
    sandbox = await start()
    token = sandbox.access_token

    await sandbox.stop()

    assert token == sandbox.access_token == sandbox.describe().access_token


async def test_a_token_can_be_revoked(client, sandbox):
    """At once, for tests of what comes after a 401."""
    assert sandbox.revoke(sandbox.access_token)
    assert not sandbox.revoke("nobody's")
    with pytest.raises(AuthenticationFailed):
        await client.plans.get(sandbox.plan_id)


REQUEST = {"grant_type": "authorization_code"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"client_id": "1"}, "invalid_client"),
        ({"client_secret": "wrong"}, "invalid_client"),
        ({"code": "TG-unknown"}, "invalid_grant"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": 5}, "invalid_request"),
        ({"grant_type": "refresh_token"}, "invalid_request"),
        ({"code": None}, "invalid_request"),
        ({"client_id": None}, "invalid_request"),
        ({"client_id": ""}, "invalid_request"),
        ({"surprise": "x"}, "invalid_request"),
        ({"refresh_token": "TG-1"}, "invalid_request"),
        ({"scope": ""}, "invalid_scope"),
        ({"scope": " read"}, "invalid_scope"),
        ({"scope": "read  write"}, "invalid_scope"),
        ({"scope": "read,write"}, "invalid_scope"),
        ({"scope": "read payments"}, "invalid_scope"),
        ({"scope": 5}, "invalid_scope"),
    ],
)
async def test_a_rejected_grant_says_why(plain, sandbox, changes, code):
    """The status is 400, `code` is the code of the contract, `error` the sub-error, and `cause` is empty."""
    info = sandbox.describe()
    body = {
        "grant_type": "authorization_code",
        "client_id": info.client_id,
        "client_secret": info.client_secret,
        "code": info.authorization_code,
        **changes,
    }

    response = await plain("POST", "/oauth/token", body, token=None)

    body = response.json
    assert (400, "bad_request", code, []) == (response.status, body["code"], body["error"], body["cause"])


@pytest.mark.parametrize("policy", ["json", "either"])
async def test_a_form_asks_for_a_token_under_a_policy(session, start, policy):
    """By default only JSON is read; under `either` a form as well, by the same rules."""
    sandbox = await start(policies={"token_body": policy})
    info = sandbox.describe()
    form = [
        ("grant_type", "refresh_token"), ("client_id", info.client_id), ("client_secret", info.client_secret),
        ("refresh_token", info.refresh_token),
    ]  # fmt: skip
    responses = []
    for body in (form, form, [*form, form[0]], form[:1], [*form, ("surprise", "x")]):
        async with session.post(f"{sandbox.base_url}/oauth/token", data=urlencode(body), headers=FORM) as response:
            responses.append((response.status, (await response.json()).get("error")))
    async with session.post(f"{sandbox.base_url}/v1/customers", data="email=a%40example.com", headers=FORM) as response:
        unauthorized = response.status

    invalid = (400, "invalid_request")
    expected = [invalid] * 5 if policy == "json" else [(200, None), (400, "invalid_grant"), *[invalid] * 3]
    assert (expected, 401) == (responses, unauthorized)


async def test_a_grant_belongs_to_its_flow_and_its_client(client, connect, sandbox):
    """A refresh token cannot be exchanged as a code, nor can another client's code."""
    with pytest.raises((BadRequest, ReauthorizationRequired)) as flow:
        await client.oauth.exchange_code(sandbox.refresh_token)
    async with connect(sandbox, sandbox.create_tenant()) as second_client:
        with pytest.raises((BadRequest, ReauthorizationRequired)) as foreign:
            await second_client.oauth.exchange_code(sandbox.authorization_code)

    assert "invalid_grant" == flow.value.code == foreign.value.code


async def test_sellers_can_share_an_application(client, sandbox):
    """As those of a marketplace do: a code, and later a refresh token, gives a token of the seller who consented."""
    second = sandbox.create_tenant(client_id=sandbox.client_id)
    for seller in (sandbox.tenant, second):
        token = await client.oauth.exchange_code(sandbox.authorize(seller))
        renewed = await client.oauth.refresh(token.refresh_token)

        assert seller.user_id == token.user_id == renewed.user_id
        assert sandbox.client_id == renewed.access_token.split("-")[1]
    with pytest.raises(BadRequest, match="invalid_grant"):
        await client.oauth.exchange_code("of-nobody")


async def test_an_unknown_application_cannot_be_shared(plain, sandbox):
    """And nobody moves in."""
    response = await plain("POST", "/_sandbox/tenants", {"client_id": "1"})

    words = "$.client_id: no seller has the application 1; give client_secret, too, to create it"
    assert (400, words) == (response.status, response.json["message"])
    with pytest.raises(ValueError, match="no seller has the application 1"):
        sandbox.create_tenant(client_id="1")
    assert 1 == len((await plain("GET", "/_sandbox/tenants")).json)


async def test_redirect_uri_must_match_where_the_application_has_one(connect, sandbox):
    """`invalid_grant`, unless it is the one that the application is configured with."""
    tenant = sandbox.create_tenant(redirect_uri="https://shop.example.com/oauth")
    async with connect(sandbox, tenant) as client:
        with pytest.raises((BadRequest, ReauthorizationRequired)):
            await client.oauth.exchange_code(tenant.authorization_code, redirect_uri="https://elsewhere.example.com")
        assert await client.oauth.exchange_code(tenant.authorization_code, redirect_uri=tenant.redirect_uri)


async def test_a_form_for_a_token_is_told_that_it_is_no_json(plain, sandbox):
    """As OAuth has it elsewhere; the rejection names the content type, and not the first byte that is no JSON."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}

    response = await plain("POST", "/oauth/token", f"client_id={sandbox.client_id}".encode(), headers=headers)

    assert (400, "invalid_request") == (response.status, response.code)
    assert b"application/x-www-form-urlencoded" in response.raw


async def test_the_token_endpoint_ignores_a_bearer_header(plain, sandbox):
    """Some clients send one, valid or not."""
    body = {
        "client_id": sandbox.client_id,
        "client_secret": sandbox.client_secret,
        "grant_type": "refresh_token",
        "refresh_token": sandbox.refresh_token,
    }

    assert 200 == (await plain("POST", "/oauth/token", body, token="nonsense")).status


async def test_scopes_limit_what_a_token_may_do(connect, sandbox, order):
    """`forbidden` for a write without `write`, and a read without `read`; tokens from OAuth inherit the scope."""
    reader = sandbox.create_tenant(scope="read")
    async with connect(sandbox, reader) as client:
        assert await client.plans.get(reader.plan_id)
        token = await client.oauth.exchange_code(reader.authorization_code)
        for bearer in (reader.access_token, token.access_token):
            with pytest.raises(PermissionDenied) as rejected:
                await client.with_options(access_token=bearer).orders.create(order())
    writer = sandbox.create_tenant(scope="write")
    async with connect(sandbox, writer) as client:
        assert await client.orders.create(order())
        with pytest.raises(PermissionDenied):
            await client.plans.get(writer.plan_id)

    assert "read" == token.scope
    assert "forbidden" == rejected.value.code


@pytest.mark.control("paymentsdk.sandbox._wire._once_each", lambda members: None)
async def test_a_parameter_that_is_given_twice_is_rejected(plain, sandbox):
    """A repeated parameter is ambiguous and is rejected; the grant stays unused."""
    info = sandbox.describe()
    body = (
        f'{{"client_id":"{info.client_id}","client_secret":"{info.client_secret}","grant_type":"authorization_code",'
        f'"code":"{info.authorization_code}"'
    )

    twice = await plain("POST", "/oauth/token", f'{body},"code":"{info.authorization_code}"}}'.encode(), token=None)
    once = await plain("POST", "/oauth/token", f"{body}}}".encode(), token=None)

    assert 400 == twice.status
    assert "invalid_request" == twice.json["error"]
    assert "code: is given twice" in twice.json["message"]
    assert 200 == once.status


async def test_all_that_was_granted_can_be_asked_for(client, sandbox):
    """By its name as without one."""
    token = await client.oauth.exchange_code(sandbox.authorization_code, scope="offline_access read write")

    assert "offline_access read write" == token.scope


async def test_a_narrower_scope_can_be_asked_for(client, sandbox, order):
    """It holds for this token; the refresh token keeps all that was granted."""
    reader = await client.oauth.exchange_code(sandbox.authorization_code, scope="read")
    async with client.with_options(access_token=reader.access_token) as narrow:
        assert await narrow.plans.get(sandbox.plan_id)
        with pytest.raises(PermissionDenied):
            await narrow.orders.create(order())
    writer = await client.oauth.refresh(reader.refresh_token, scope="write read")
    whole = await client.oauth.refresh(writer.refresh_token)

    assert ["read", "write read", "offline_access read write"] == [token.scope for token in (reader, writer, whole)]


@pytest.mark.parametrize("scope", ["", "payments", "read payments", "read,write", " read", "READ"])
async def test_a_seller_is_made_with_known_scopes_only(plain, sandbox, scope):
    """Over HTTP and in Python: an application that may do nothing would be a riddle later."""
    assert 400 == (await plain("POST", "/_sandbox/tenants", {"scope": scope})).status
    with pytest.raises(ValueError, match="scope"):
        sandbox.create_tenant(scope=scope)


async def test_a_revoked_token_is_told_from_an_expired_one(plain, sandbox):
    """The rejection says which of the two it is; moving the clock back does not revive a revoked token."""
    revoked = sandbox.describe()
    sandbox.revoke(revoked.access_token)
    sandbox.revoke(revoked.refresh_token)
    fresh = sandbox.create_tenant()

    first = await plain("GET", "/preapproval_plan/search", token=revoked.access_token)
    grant = {"grant_type": "refresh_token", "refresh_token": revoked.refresh_token}
    refresh = {**grant, "client_id": revoked.client_id, "client_secret": revoked.client_secret}
    second = await plain("POST", "/oauth/token", refresh, token=None)
    sandbox.clock.freeze(sandbox.clock.now() - timedelta(days=1))
    third = await plain("GET", "/preapproval_plan/search", token=revoked.access_token)
    sandbox.clock.advance(timedelta(days=182))
    expired = await plain("GET", "/preapproval_plan/search", token=fresh.access_token)

    assert [401, 400, 401, 401] == [response.status for response in (first, second, third, expired)]
    assert "revoked" in first.json["message"]
    assert ("invalid_grant", True) == (second.json["error"], "revoked" in second.json["message"])
    assert "revoked" in third.json["message"]
    assert "expired" in expired.json["message"]


UNAUTHORIZED = {
    "/v1/orders": (401, "unauthorized"),
    "/v1/advanced_payments": (401, "unauthorized"),
    "/v1/customers": (401, "unauthorized"),
    "/checkout/preferences": (400, "invalid_access_token"),
}


@pytest.mark.parametrize("path", UNAUTHORIZED)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer nobody"},
        {"Authorization": "Basic bm9ib2R5"},
        {"Authorization": "Bearer \xff\xfe"},
    ],
)
async def test_a_bad_token_is_rejected_with_the_code_of_the_operation(plain, path, headers):
    """Missing, empty, unknown, of another scheme: the same rejection."""
    response = await plain("POST", path, {}, token=None, key="k", headers=headers)

    assert UNAUTHORIZED[path] == (response.status, response.code)


@pytest.mark.parametrize("grant", ["refresh_token", "authorization_code"])
async def test_only_an_access_token_is_a_bearer_token(client, sandbox, grant):
    """A refresh token or a code is rejected as a bearer token, as in production."""
    wrong_client = client.with_options(access_token=getattr(sandbox.tenant, grant))

    with pytest.raises(AuthenticationFailed, match="is not known"):
        await wrong_client.plans.get(sandbox.plan_id)


async def test_reads_reject_a_bad_token_too(plain):
    """Merchant orders and the report schedule call it `invalid_token`."""
    assert "invalid_token" == (await plain("GET", "/merchant_orders/search", token="x")).code
    assert "invalid_token" == (await plain("DELETE", "/v1/account/release_report/schedule", token="x")).code
    assert "unauthorized" == (await plain("GET", "/authorized_payments/search", token="x")).code


@pytest.mark.parametrize("status", [400, 401])
async def test_the_status_of_a_preference_with_a_bad_token_is_a_policy(start, plain_to, status):
    """The contract's table says 400; most of the platform says 401."""
    sandbox = await start(policies={"denied_preference_status": status})

    assert status == (await plain_to(sandbox)("POST", "/checkout/preferences", {}, token="x")).status


async def test_a_token_in_the_query_is_no_token(plain, sandbox):
    """The contract does not allow it."""
    response = await plain("GET", f"/v1/orders/ORD{'0' * 26}?access_token={sandbox.access_token}", token=None)

    assert 401 == response.status


async def test_a_token_in_the_query_is_rejected_next_to_a_valid_header(plain, sandbox, data):
    """There the contract does not allow it: it would stand in the logs of everybody on the way. Nothing is done."""
    query = f"?access_token={sandbox.access_token}"
    new_order = (await plain("POST", "/v1/orders", data(), key="k")).json
    requests = {
        ("POST", "/v1/orders"): data(),
        ("GET", f"/v1/orders/{new_order['id']}"): None,
        ("POST", f"/v1/orders/{new_order['id']}/cancel"): None,
        ("POST", f"/v1/orders/{new_order['id']}/refund"): None,
    }
    rejected = [await plain(method, path + query, body, key="new") for (method, path), body in requests.items()]

    assert [(400, "bad_request")] * 4 == [(response.status, response.code) for response in rejected]
    assert not any(sandbox.access_token.encode() in response.raw for response in rejected)
    assert ["order_created"] == [entry.kind for entry in sandbox.ledger()]


async def test_a_token_in_the_query_is_ignored_elsewhere(plain, sandbox):
    """The contract forbids it in the Orders API alone."""
    response = await plain("GET", f"/preapproval_plan/search?access_token={sandbox.access_token}")

    assert 200 == response.status


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_scheme_may_have_any_case(plain, sandbox, scheme):
    """As HTTP has it."""
    headers = {"authorization": f"{scheme} {sandbox.access_token}"}

    assert 200 == (await plain("GET", "/preapproval_plan/search", token=None, headers=headers)).status


async def test_a_token_of_another_scheme_is_no_bearer_token(plain, sandbox):
    """`Digest` is as long as `Bearer`, and a good token behind it is not taken all the same."""
    headers = {"Authorization": f"Digest {sandbox.access_token}"}

    assert 401 == (await plain("GET", "/preapproval_plan/search", token=None, headers=headers)).status


async def test_live_tokens_are_rejected_unless_asked_for(start, plain_to, data):
    """`APP_USR` is for the real platform; with `live_tokens` it stands for its TEST twin."""
    for live, expected in ((False, (401, "invalid_credentials")), (True, (201, ""))):
        sandbox = await start(live_tokens=live)
        token = sandbox.access_token.replace("TEST-", "APP_USR-")
        response = await plain_to(sandbox)("POST", "/v1/orders", data(), key="k", token=token)
        assert expected == (response.status, response.code if response.status != 201 else "")


@pytest.mark.parametrize(("policy", "works"), [("valid", True), ("revoked", False)])
@pytest.mark.parametrize("rotation", ["rotate", "keep"])
async def test_whether_the_old_token_lives_on_is_a_policy(start, connect, policy, works, rotation):
    """The contract does not say; every token that a refresh replaces follows the policy, and the new one works."""
    sandbox = await start(policies={"access_tokens_after_refresh": policy, "refresh_tokens": rotation})
    async with connect(sandbox) as client:
        tokens = [await client.oauth.exchange_code(sandbox.authorization_code)]
        for _ in range(2):
            tokens.append(await client.oauth.refresh(tokens[-1].refresh_token))
        accepted = [await is_taken(client, token.access_token) for token in tokens]

    assert [works, works, True] == accepted


async def is_taken(client, token: str) -> bool:
    """Whether a search with *token* succeeds."""
    try:
        await client.with_options(access_token=token).plans.search().first()
    except AuthenticationFailed:
        return False
    return True


@pytest.mark.parametrize(("policy", "goes_on"), [("valid", True), ("revoked", False)])
async def test_an_early_refresh_that_is_lost_costs_what_the_policy_says(start, policy, goes_on):
    """The pair is made and never arrives. With a month to go the old token still works, unless a refresh revokes it."""
    sandbox = await start(policies={"access_tokens_after_refresh": policy})
    sandbox.faults.add(FaultRule(effect="lose_response_after_commit", operation="oauth.token"))
    pair = TokenPair(access_token=sandbox.access_token, refresh_token=sandbox.refresh_token, expires_at=4e9)
    seller = PaymentsClient(
        auth=RefreshingToken(pair, early=4e9),
        base_url=sandbox.base_url,
        client_id=sandbox.client_id,
        client_secret=sandbox.client_secret,
        retry=RetryPolicy(attempts=1),
    )
    async with seller:
        try:
            is_valid = await seller.plans.search().first() is not None
        except (ReauthorizationRequired, RefreshFailed):
            is_valid = False

    assert goes_on == is_valid
    assert 1 == [entry.kind for entry in sandbox.ledger()].count("token_created")
