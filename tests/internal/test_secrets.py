"""The parts that keep credentials out of sight, each by itself."""

from __future__ import annotations

import base64
import copy
import pickle
from typing import ClassVar
from urllib.parse import quote

import pytest

from paymentsdk._auth.schemes import NoToken
from paymentsdk._call.credential import Bearer, Credential
from paymentsdk._secrets import MaskedRepr, masked, scrub, secrets_in
from paymentsdk.resources.common import RequestStruct

ACCESS, CARD = CANARIES = "access-canary-0000", "card-canary-0002"


class Card(MaskedRepr, RequestStruct):
    """A request with a credential."""

    number: str
    __secrets__: ClassVar[frozenset[str]] = frozenset({"number"})


def assert_clean(*texts: str) -> None:
    """Find no credential in what a person may see."""
    assert [] == [canary for canary in CANARIES for text in texts if canary in text]


@pytest.mark.control("paymentsdk._secrets.HiddenRepr.__reduce__", object.__reduce__, raises=pytest.fail.Exception)
@pytest.mark.control("paymentsdk._secrets.SecretBytes.__reduce__", object.__reduce__, raises=pytest.fail.Exception)
def test_no_pickle_takes_a_credential_along() -> None:
    """Nor that of what the engine holds it in, or of what was given as bytes; a copy within the process is allowed."""
    for holder in (Credential(Bearer(NoToken()), None, None, (), ACCESS), masked(ACCESS.encode()), masked(ACCESS)):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(holder)

    assert copy.deepcopy(masked(ACCESS.encode())) == ACCESS.encode()


@pytest.mark.control("paymentsdk._secrets.Secret.__getitem__", str.__getitem__)
@pytest.mark.control("paymentsdk._secrets.SecretBytes.__getitem__", bytes.__getitem__)
def test_the_beginning_of_a_long_credential_is_not_shown() -> None:
    """What is cut to its first characters before it is shown, as rich does beyond 80, shows none of them."""
    for credential in (ACCESS * 10, ACCESS.encode() * 10):
        begun = masked(credential)[:80]
        assert credential[:80] == begun
        assert_clean(repr(begun))


def test_credentials_are_found_at_any_depth() -> None:
    """Every credential in a body is known, to be masked in what comes back."""
    assert [CARD] == list(secrets_in(Card(number=CARD)))
    assert [CARD, CARD] == list(secrets_in([Card(number=CARD), (Card(number=CARD),), "text", None]))
    assert b"*** and abc" == scrub(f"{CARD} and abc".encode(), [CARD, "abc"])
    assert b"*** and ***" == scrub(f"{CARD} and {CARD}-2".encode(), [CARD, f"{CARD}-2"])
    assert b"<p>no *** here" == scrub(b'<p>no pass"123 here', ['pass"123'])
    assert b'{"said":"no *** here"}' == scrub(rb'{"said":"no pass\"123 here"}', ['pass"123'])


@pytest.mark.parametrize(("text", "masked"), [
    ("pin x9y8 is wrong", "pin *** is wrong"), ('{"pin":"x9y8"}', '{"pin":"***"}'), ("ax9y8 x9y8b", "ax9y8 x9y8b"),
])  # fmt: skip
def test_a_short_credential_is_masked_as_a_word(text, masked):
    """Of 4 to 7 characters: anywhere else it would garble the text."""
    assert masked == scrub(text.encode(), ["x9y8"]).decode()


@pytest.mark.parametrize("secret", ["APP-Secret-1", "x9Y8"])
def test_upper_and_lower_case_are_the_same(secret):
    """A gateway may write all headers of a request in one case: who reads that still has most of the credential."""
    for written in (secret, secret.lower(), secret.upper()):
        assert b'{"got":"Bearer ***"}' == scrub(f'{{"got":"Bearer {written}"}}'.encode(), [secret])


@pytest.mark.control("paymentsdk._secrets._forms", lambda secret: {secret.encode()})
@pytest.mark.parametrize("before", ["a", "Bearer "])
@pytest.mark.parametrize("secret", ["APP/se+cret=0-42", "\u00e9t\u00e9-canary-0003"])
def test_a_credential_is_found_in_other_forms(secret: str, before: str) -> None:
    """A gateway may repeat what it was sent as it stands in a URL, or as base64 of it and of what stood before it."""
    text = f"{before}{secret} and more".encode()
    in_a_url, around = quote(text, safe=""), f"{quote(before, safe='')}***%20and%20more"
    assert around == scrub(in_a_url.encode(), [secret]).decode()
    assert around.lower() == scrub(in_a_url.lower().encode(), [secret]).decode()
    for written in (base64.b64encode(text), base64.urlsafe_b64encode(text)):
        begin, end = scrub(written, [secret]).split(b"***")
        # What is left tells of what stands around it, and of half a character of it at most.
        assert (len(before) * 8 + 7) // 6 >= len(begin) - 1
        assert base64.b64encode(text).endswith(end)
        assert len(b" and more") * 8 // 6 + 3 >= len(end)
