"""Access tokens (4.1): an authorization code gives the first token, a refresh token every later one."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from paymentsdk._auth.schemes import Credentials, credentials_of
from paymentsdk._auth.token_store import TokenPair
from paymentsdk._contract.operation import Operation
from paymentsdk._contract.rules import ErrorCode, RetryClass
from paymentsdk._secrets import MaskedRepr, masked
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources.common import Id, RequestStruct, Resource, ResponseStruct, require, settling

#: The ``expires_in`` of the contract, in seconds: 180 days. The client never assumes it.
DEFAULT_LIFETIME = 15_552_000

#: The field that each type of grant requires.
GRANTED_BY = {"authorization_code": "code", "refresh_token": "refresh_token"}


class TokenRequest(MaskedRepr, RequestStruct, forbid_unknown_fields=True):
    """A grant to exchange (4.1). ``repr`` hides the secret, the code, the verifier and the refresh token.

    Raises:
        RequestInvalid: The grant lacks its code or its refresh token, or has both.
    """

    client_id: Annotated[str, Meta(min_length=1)]
    """Required: the id of the application, not empty."""
    client_secret: Annotated[str, Meta(min_length=1)]
    """Required: the secret of the application, not empty."""
    grant_type: Literal["authorization_code", "refresh_token"]
    """Required: `authorization_code` for the first token, `refresh_token` for every later one."""
    code: Annotated[str, Meta(min_length=1)] | None = None
    """Required for `authorization_code` only: the code from the seller's authorization, valid once and for 10
    minutes."""
    refresh_token: Annotated[str, Meta(min_length=1)] | None = None
    """Required for `refresh_token` only: the refresh token from the last response; valid once."""
    redirect_uri: str | None = None
    """The URL that the code was sent to, if the application is configured with one."""
    code_verifier: str | None = None
    """The verifier of PKCE, if the authorization had a challenge."""
    scope: str | None = None
    """The permissions of the token, separated by spaces: a part of the granted permissions, by default all of them."""
    __secrets__: ClassVar[frozenset[str]] = frozenset({"client_secret", "code", "refresh_token", "code_verifier"})

    def __post_init__(self) -> None:
        if self.grant_type not in list(GRANTED_BY):
            return  # The encoder rejects it, with the list of grants.
        for grant_type, member in GRANTED_BY.items():
            is_set = getattr(self, member) is not None
            if grant_type == self.grant_type:
                require(is_set, f"$.{member}", f"is required for the grant {grant_type}")
            else:
                require(not is_set, f"$.{member}", f"cannot be combined with the grant {self.grant_type}")


class Token(MaskedRepr, ResponseStruct):
    """An access token and its properties. ``repr`` hides both tokens, and it cannot be pickled."""

    access_token: str
    """`<type>-<client_id>-<creation_date>-<hash>-<user_id>`. The type is `APP_USR` (acts for a user) or `TEST` (works
    only in the sandbox), and the creation date is `MMddHH`. The client does not depend on this form."""
    token_type: str | None = None
    """Always `bearer`, in any case; `None` if not sent."""
    expires_in: int | None = None
    """Seconds from now until the access token expires, usually 15,552,000 (180 days); `None` if not sent."""
    scope: str | None = None
    """`offline_access`, `read`, `write`, separated by spaces."""
    user_id: Id | None = None
    """The user id of the seller; `None` if not sent."""
    refresh_token: str | None = None
    """Valid for one refresh, which returns a new one; `None` if not sent."""
    public_key: str | None = None
    """The public key of the application; `None` if not sent."""
    live_mode: bool | None = None
    """Whether the token moves real money; `None` if not sent."""
    __secrets__: ClassVar[frozenset[str]] = frozenset({"access_token", "refresh_token"})

    def pair(self, now: float | None = None) -> TokenPair:
        """Return the pair that a `TokenStore` keeps.

        Args:
            now: When the token was made, in seconds since the epoch; by default now.
        """
        issued_at = time.time() if now is None else now
        try:
            expires_at = None if self.expires_in is None else issued_at + self.expires_in
        except OverflowError:
            # A number of hundreds of digits. The grant is spent, so the token is used, with an unknown end.
            expires_at = None
        return TokenPair(
            access_token=self.access_token, refresh_token=self.refresh_token, expires_at=expires_at, issued_at=issued_at
        )


TOKEN: Operation[TokenRequest, Token] = Operation(
    name="oauth.token",
    method="POST",
    path="/oauth/token",
    section="4.1",
    summary="Create or refresh an access token",
    retry=RetryClass.TOKEN_CODE,
    in_doubt="do not send it again: the code may be spent, and then the seller has to authorize again",
    body=TokenRequest,
    example={
        "client_id": "1234567890",
        "client_secret": "the-secret-of-the-application",
        "grant_type": "authorization_code",
        "code": "TG-0123456789abcdef",
    },
    result=Token,
    authenticated=False,
    errors=(
        ErrorCode(400, "bad_request", "the grant was rejected; the sub-error says why"),
        # These settle, since the grant is useless now, even if an earlier attempt has used it.
        settling(400, "invalid_client", "client_id or client_secret is invalid"),
        settling(
            400,
            "invalid_grant",
            "the code or refresh token is invalid, expired, revoked, used in the wrong flow or of another client, "
            "or redirect_uri differs from the redirect_uri of the application",
        ),
        ErrorCode(400, "invalid_scope", "the scope is invalid, unknown or malformed"),
        ErrorCode(
            400, "invalid_request", "a parameter is missing, unsupported or given twice, or the request is malformed"
        ),
        ErrorCode(400, "unsupported_grant_type", "grant_type is neither authorization_code nor refresh_token"),
        ErrorCode(400, "forbidden", "the call is not authorized; the token may be another user's"),
        settling(
            400, "unauthorized_client", "the application has no grant of the user, or the user may not create a token"
        ),
    ),
)
# The same operation, with another reaction to failures: a code is never sent twice, but a refresh token may be.
# The name stays the same, so that logs, events and `OPERATIONS` have both grants under one name.
_REFRESH = replace(
    TOKEN,
    retry=RetryClass.TOKEN_REFRESH,
    in_doubt="refresh again: if the refresh token is spent, it is rejected, and the seller has to authorize again",
)


class OAuth(Resource):
    """``client.oauth``: access tokens."""

    async def exchange_code(
        self,
        code: str,
        *,
        redirect_uri: str | None = None,
        code_verifier: str | None = None,
        scope: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
    ) -> Token:
        """Exchange the code from a seller's authorization for their first token (4.1).

        Args:
            code: The authorization code; valid once, and for 10 minutes.
            redirect_uri: The address that the code was sent to, if the application is configured with one.
            code_verifier: The verifier of PKCE.
            scope: The permissions of the token, separated by spaces; by default all granted permissions.
            client_id: The id of the application; by default the client's application.
            client_secret: The secret of the application; requires *client_id*.

        Raises:
            RequestInvalid: Neither the call nor the client has an id and a secret, or the code is empty; nothing was
                sent.
            BadRequest: The platform rejected the request; see ``TOKEN.errors`` for the codes.
            OutcomeUnknown: The code may be spent. If it is, the seller has to authorize again.
        """
        code, code_verifier, client_secret = masked(code), masked(code_verifier), masked(client_secret)
        application = self._application(client_id, client_secret)
        request = TokenRequest(
            client_id=application.client_id,
            client_secret=application.client_secret,
            grant_type="authorization_code",
            code=code,
            redirect_uri=redirect_uri,
            code_verifier=code_verifier,
            scope=scope,
        )
        return (await self._engine.call(TOKEN, request)).value

    async def refresh(
        self,
        refresh_token: str,
        *,
        scope: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
    ) -> Token:
        """Exchange a refresh token for a new token (4.1).

        The response holds a new refresh token, and the old refresh token is spent: store the new one before you use it.

        Args:
            refresh_token: The refresh token from the last response.
            scope: The permissions of the new token, separated by spaces; by default all granted permissions.
            client_id: The id of the application; by default the client's application.
            client_secret: The secret of the application; requires *client_id*.

        Raises:
            RequestInvalid: Neither the call nor the client has an id and a secret, or the refresh token is empty;
                nothing was sent.
            ReauthorizationRequired: ``invalid_grant`` or ``unauthorized_client``: a person must authorize again;
                ``invalid_client``: the id or the secret of the application is wrong.
            BadRequest: The platform rejected the request for another reason.
            OutcomeUnknown: The refresh token may be spent.
        """
        refresh_token, client_secret = masked(refresh_token), masked(client_secret)
        application = self._application(client_id, client_secret)
        request = TokenRequest(
            client_id=application.client_id,
            client_secret=application.client_secret,
            grant_type="refresh_token",
            refresh_token=refresh_token,
            scope=scope,
        )
        return (await self._engine.call(_REFRESH, request)).value

    def _application(self, client_id: str | None, client_secret: str | None) -> Credentials:
        """Return the application of the call, by default the client's application."""
        credentials = credentials_of(client_id, client_secret) or self._engine.settings.credentials
        if credentials is None:
            raise RequestInvalid("client_id", "must be given with client_secret, in the call or on the client")
        return credentials
