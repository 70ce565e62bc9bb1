"""Tokens: codes, refresh tokens, scopes, and how long each lives."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlencode

import pytest

from paymentsdk import AuthenticationFailed, BadRequest, PermissionDenied, ReauthorizationRequired
from tests.sandbox.orders import members

#: How a client raises the rejection of a grant.
DENIED = (BadRequest, ReauthorizationRequired)


async def test_a_code_gives_a_token(client, sandbox):
    """Every member of the contract, and an access token that says who it is for."""
    token = await client.oauth.exchange_code(sandbox.authorization_code)
    kind, client_id, created, _, user_id = token.access_token.split("-")

    assert ("bearer", 15_552_000, "offline_access read write", False) == members(
        token, "token_type expires_in scope live_mode"
    )
    assert (sandbox.tenant.user_id, sandbox.tenant.public_key) == (token.user_id, token.public_key)
    assert ("TEST", sandbox.client_id, str(sandbox.tenant.user_id)) == (kind, client_id, user_id)
    assert f"{sandbox.clock.now():%m%d%H}" == created
    assert token.refresh_token
    async with client.with_options(access_token=token.access_token) as second_client:
        assert await second_client.plans.get(sandbox.plan_id)


async def test_a_code_is_good_for_ten_minutes(client, sandbox):
    """To the millisecond, by the sandbox's clock."""
    first, second = sandbox.authorization_code, sandbox.authorize(sandbox.tenant)
    sandbox.clock.advance(timedelta(minutes=10, milliseconds=-1))
    assert await client.oauth.exchange_code(first)

    sandbox.clock.advance(timedelta(milliseconds=1))
    with pytest.raises(DENIED, match="invalid_grant"):
        await client.oauth.exchange_code(second)


async def test_a_wrong_secret_of_the_application_spends_no_grant(client, sandbox):
    """`invalid_client` ends the refreshes of a program, and the refresh token is good once its secret is right."""
    with pytest.raises(ReauthorizationRequired) as rejected:
        await client.oauth.refresh(sandbox.refresh_token, client_id=sandbox.client_id, client_secret="wrong")
    token = await client.oauth.refresh(sandbox.refresh_token)

    assert ("invalid_client", "bearer") == (rejected.value.code, token.token_type)


async def test_a_refresh_token_is_spent_by_its_use(client, sandbox):
    """Every refresh brings a new pair; the old refresh token is `invalid_grant`, the new one works."""
    first = await client.oauth.refresh(sandbox.refresh_token)
    second = await client.oauth.refresh(first.refresh_token)
    with pytest.raises(DENIED) as rejected:
        await client.oauth.refresh(sandbox.refresh_token)

    assert 3 == len({sandbox.refresh_token, first.refresh_token, second.refresh_token})
    assert first.access_token != second.access_token
    assert "invalid_grant" == rejected.value.code
    assert [("token_created", "refresh")] * 2 == [(entry.kind, entry.order_id) for entry in sandbox.ledger()]


async def test_a_refresh_token_can_be_kept_under_the_other_policy(start, connect):
    """`refresh_tokens=keep`: the same one, again and again. A code is good once all the same."""
    sandbox = await start(policies={"refresh_tokens": "keep"})
    async with connect(sandbox) as client:
        tokens = [await client.oauth.refresh(sandbox.refresh_token) for _ in range(2)]
        await client.oauth.exchange_code(sandbox.authorization_code)
        with pytest.raises(DENIED, match="invalid_grant"):
            await client.oauth.exchange_code(sandbox.authorization_code)

    assert {sandbox.refresh_token} == {token.refresh_token for token in tokens}


async def test_a_request_for_a_token_may_be_a_form_under_a_policy(plain, sandbox):
    """By default, and for all other operations, a form is malformed JSON."""
    names = ("client_id", "client_secret", "refresh_token")
    form = urlencode({"grant_type": "refresh_token", **{name: getattr(sandbox, name) for name in names}}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    statuses = []
    for policy, path in (("json", "/oauth/token"), ("either", "/oauth/token"), ("either", "/v1/orders")):
        sandbox.change_policies({"token_body": policy})
        statuses.append((await plain("POST", path, form, key="k", headers=headers)).status)

    assert [400, 200, 400] == statuses


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


GRANTS = [
    ({"client_id": "1"}, "invalid_client"),
    ({"code": "TG-unknown"}, "invalid_grant"),
    ({"grant_type": "password"}, "unsupported_grant_type"),
    ({"grant_type": "refresh_token"}, "invalid_request"),
    ({"code": None}, "invalid_request"),
    ({"surprise": "x"}, "invalid_request"),
    ({"refresh_token": "TG-1"}, "invalid_request"),
    ({"scope": ""}, "invalid_scope"),
    ({"scope": "read  write"}, "invalid_scope"),
    ({"scope": "read payments"}, "invalid_scope"),
    ({"scope": 5}, "invalid_scope"),
]


async def test_a_rejected_grant_says_why(plain, sandbox):
    """The status is 400, `code` is the code of the contract, `error` the sub-error, and `cause` is empty."""
    grant = {"client_id": sandbox.client_id, "client_secret": sandbox.client_secret}
    grant |= {"grant_type": "authorization_code", "code": sandbox.authorization_code}
    for changes, code in GRANTS:
        response = await plain("POST", "/oauth/token", {**grant, **changes}, token=None)

        body = response.json
        assert (400, "bad_request", code, []) == (response.status, body["code"], body["error"], body["cause"])


async def test_a_grant_belongs_to_its_flow_and_its_client(client, connect, sandbox):
    """A refresh token cannot be exchanged as a code, nor can another client's code."""
    with pytest.raises(DENIED) as flow:
        await client.oauth.exchange_code(sandbox.refresh_token)
    async with connect(sandbox, sandbox.create_tenant()) as second_client:
        with pytest.raises(DENIED) as foreign:
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


async def test_redirect_uri_must_match_where_the_application_has_one(connect, sandbox):
    """`invalid_grant`, unless it is the one that the application is configured with."""
    tenant = sandbox.create_tenant(redirect_uri="https://shop.example.com/oauth")
    async with connect(sandbox, tenant) as client:
        with pytest.raises(DENIED):
            await client.oauth.exchange_code(tenant.authorization_code, redirect_uri="https://elsewhere.example.com")
        assert await client.oauth.exchange_code(tenant.authorization_code, redirect_uri=tenant.redirect_uri)


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


async def test_a_seller_is_made_with_known_scopes_only(plain, sandbox):
    """Over HTTP and in Python: an application that may do nothing would be a riddle later."""
    for scope in ("", "read payments", "READ"):
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
    ("POST", "/v1/orders"): (401, "unauthorized"),
    ("POST", "/v1/customers"): (401, "unauthorized"),
    ("POST", "/checkout/preferences"): (400, "invalid_access_token"),
    ("GET", "/authorized_payments/search"): (401, "unauthorized"),
    ("GET", "/merchant_orders/search"): (401, "invalid_token"),
    ("DELETE", "/v1/account/release_report/schedule"): (401, "invalid_token"),
}


async def test_a_bad_token_is_rejected_with_the_code_of_the_operation(plain):
    """Missing, empty, unknown, of another scheme: the same rejection."""
    for (method, path), rejection in UNAUTHORIZED.items():
        for token in (None, "", "Bearer", "Bearer nobody", "Basic bm9ib2R5", "Bearer \xff\xfe"):
            headers = {} if token is None else {"Authorization": token}
            response = await plain(method, path, {} if method == "POST" else None, token=None, key="k", headers=headers)
            assert rejection == (response.status, response.code)


async def test_only_an_access_token_is_a_bearer_token(client, sandbox):
    """A refresh token or a code is rejected as a bearer token, as in production."""
    for grant in (sandbox.refresh_token, sandbox.authorization_code):
        with pytest.raises(AuthenticationFailed, match="is not known"):
            await client.with_options(access_token=grant).plans.get(sandbox.plan_id)


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
    assert all(b'"details":["access_token"]' in response.raw for response in rejected)
    assert not any(sandbox.access_token.encode() in response.raw for response in rejected)
    assert ["order_created"] == [entry.kind for entry in sandbox.ledger()]


async def test_a_token_in_the_query_is_ignored_elsewhere(plain, sandbox):
    """The contract forbids it in the Orders API alone; nowhere it is a token."""
    path = f"/preapproval_plan/search?access_token={sandbox.access_token}"

    assert [200, 401] == [(await plain("GET", path)).status, (await plain("GET", path, token=None)).status]


async def test_the_scheme_may_have_any_case(plain, sandbox):
    """As HTTP has it; a good token behind another scheme is not taken."""
    for scheme, status in (("bearer", 200), ("BEARER", 200), ("Digest", 401)):
        headers = {"authorization": f"{scheme} {sandbox.access_token}"}
        assert status == (await plain("GET", "/preapproval_plan/search", token=None, headers=headers)).status


async def test_live_tokens_are_rejected(plain, sandbox, data):
    """`APP_USR` is for the real platform."""
    token = sandbox.access_token.replace("TEST-", "APP_USR-")
    response = await plain("POST", "/v1/orders", data(), key="k", token=token)
    assert (401, "invalid_credentials") == (response.status, response.code)


@pytest.mark.parametrize(("policy", "works"), [("valid", True), ("revoked", False)])
async def test_whether_the_old_token_lives_on_is_a_policy(start, connect, policy, works):
    """The contract does not say; every token that a refresh replaces follows the policy, and the new one works."""
    sandbox = await start(policies={"access_tokens_after_refresh": policy})
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
