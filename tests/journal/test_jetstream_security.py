"""Journals on JetStream over TLS and with files of credentials, on real servers."""

from __future__ import annotations

import json
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from afflux.core.errors import AddressError
from afflux.journal.address import StreamAddress
from afflux.journal.errors import JournalError
from afflux.journal.store import Journal
from afflux.transports.security import Tls
from tests.journal.nats import NatsServer, nats_server, needs_nats
from tests.transports.certificates import Certificates

nkeys = pytest.importorskip("nkeys", reason='files of NATS credentials need the extra "nats"')
pytestmark = needs_nats


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[NatsServer]:
    """A server that requires TLS, and certificates of its clients."""
    tls = (
        f'tls {{ cert_file: "{certificates.server}", key_file: "{certificates.server}", '
        f'ca_file: "{certificates.ca}", verify: true }}'
    )
    with nats_server(tmp_path_factory.mktemp("secure"), more=tls) as running:
        yield running


def over_tls(server: NatsServer, stream: str, **options: object) -> str:
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"nats+tls://localhost:{server.port}/{stream}?{query}"


def round_trip(uri: str) -> None:
    """Append large blocks, and read them over another connection."""
    items = [b"%d" % number + b"x" * 900_000 for number in range(5)]
    with Journal(uri) as journal:
        for item in items:
            journal.append([item], 0)
        journal.commit()
    with Journal(uri) as journal:
        assert journal.head == len(items)
        for offset, item in enumerate(items):
            assert journal.read(offset, 1)[0].data() == [item]
        journal.remove()


# -- addresses ----------------------------------------------------------------------------------------------------


def test_an_address_with_tls_has_its_options() -> None:
    address = StreamAddress.parse("nats+tls://a,b/ticks?ca=%2Fca.pem&key=k.pem&cert=c.pem&name=n.example&creds=u.creds")
    assert address.tls == Tls(ca="/ca.pem", cert="c.pem", key="k.pem", server_name="n.example")
    assert (address.creds, str(address)) == ("u.creds", "nats+tls://a:4222,b:4222/ticks")
    assert StreamAddress.parse("nats+tls://a/ticks").tls == Tls()


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("nats://a/ticks?ca=ca.pem", r"are for TLS: write nats\+tls://"),
        ("nats+tls://a/ticks?key=k.pem", "needs its certificate: cert="),
        ("nats+tls://a/ticks?client_ca=c.pem", "unknown option 'client_ca'"),
        ("nats://me:pw@a/ticks?creds=u.creds", "creds= cannot be combined"),
    ],
)
def test_options_that_contradict_are_refused(uri: str, problem: str) -> None:
    with pytest.raises(AddressError, match=problem):
        StreamAddress.parse(uri)


@pytest.mark.parametrize(
    ("option", "problem"),
    [("ca=missing.pem", "ca: there is no file missing.pem"), ("creds=missing", "creds: there is no file missing")],
)
def test_a_missing_file_is_named_before_anything_is_opened(option: str, problem: str) -> None:
    with pytest.raises(AddressError, match=problem):
        Journal(f"nats+tls://127.0.0.1:1/ticks?{option}")


def test_a_file_that_has_no_credentials_is_named(tmp_path: Path) -> None:
    (tmp_path / "u.creds").write_text("hunter2")
    with pytest.raises(AddressError, match="has neither the JWT and the seed") as refused:
        Journal(f"nats://127.0.0.1:1/ticks?creds={tmp_path / 'u.creds'}")
    assert "hunter2" not in str(refused.value)


# -- TLS ----------------------------------------------------------------------------------------------------------


def test_a_journal_is_stored_over_tls(secure: NatsServer, certificates: Certificates) -> None:
    round_trip(over_tls(secure, "ticks", ca=certificates.ca, cert=certificates.client))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"ca": "other_ca", "cert": "client"}, "not signed by a trusted authority"),
        ({"ca": "ca", "cert": "client", "name": "n.example"}, "not for n.example"),
        ({"ca": "ca"}, "requires a certificate|does not accept|closed the connection"),
    ],
)
def test_a_refused_certificate_is_an_error_at_once(
    secure: NatsServer, certificates: Certificates, options: dict[str, str], problem: str
) -> None:
    files = {name: getattr(certificates, value, value) for name, value in options.items()}
    with pytest.raises(JournalError, match=problem):
        Journal(over_tls(secure, "ticks", timeout=20, **files))


def test_nothing_is_sent_to_a_server_without_tls(tmp_path: Path, certificates: Certificates) -> None:
    with nats_server(tmp_path, more='authorization { user: "me", password: "hunter2" }') as server:
        with pytest.raises(JournalError, match="does not require TLS"):
            Journal(f"nats+tls://me:hunter2@localhost:{server.port}/ticks?ca={certificates.ca}&timeout=20")
        assert "hunter2" not in (server.directory / "log").read_text()


# -- credentials --------------------------------------------------------------------------------------------------


class Key:
    """An nkey of one kind: operator, account or user."""

    def __init__(self, kind: int) -> None:
        self.seed = nkeys.encode_seed(secrets.token_bytes(32), kind)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public = self._pair.public_key.decode()

    def jwt(self, issuer: Key, kind: str, **more: object) -> str:
        """Return a claim about this key, signed by another one."""
        claims = {
            "jti": secrets.token_hex(8), "iat": 1, "iss": issuer.public, "name": kind, "sub": self.public,
            "nats": {"type": kind, "version": 2} | more,
        }  # fmt: skip
        parts = [_encoded({"typ": "JWT", "alg": "ed25519-nkey"}), _encoded(claims)]
        signed = issuer._pair.sign(".".join(parts).encode())
        return ".".join([*parts, urlsafe_b64encode(signed).decode().rstrip("=")])


def _encoded(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def test_the_seed_of_an_nkey_is_a_credential(tmp_path: Path) -> None:
    user, other = Key(nkeys.PREFIX_BYTE_USER), Key(nkeys.PREFIX_BYTE_USER)
    (tmp_path / "user.nk").write_bytes(bytes(user.seed) + b"\n")
    (tmp_path / "other.nk").write_bytes(bytes(other.seed))
    with nats_server(tmp_path, more=f"authorization {{ users: [ {{ nkey: {user.public} }} ] }}") as server:
        round_trip(server.uri("ticks", f"?creds={tmp_path / 'user.nk'}"))
        with pytest.raises(JournalError, match="refuses the credentials") as refused:
            Journal(server.uri("ticks", f"?creds={tmp_path / 'other.nk'}"))
        assert bytes(other.seed).decode() not in str(refused.value)


def test_a_file_of_a_jwt_and_a_seed_is_a_credential(tmp_path: Path) -> None:
    operator, account = Key(nkeys.PREFIX_BYTE_OPERATOR), Key(nkeys.PREFIX_BYTE_ACCOUNT)
    system, user = Key(nkeys.PREFIX_BYTE_ACCOUNT), Key(nkeys.PREFIX_BYTE_USER)
    unlimited = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    stored = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    of_account = account.jwt(operator, "account", limits=unlimited | stored | {"wildcards": True})
    of_user = user.jwt(account, "user", subs=-1, data=-1, payload=-1)
    (tmp_path / "user.creds").write_text(
        f"-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{bytes(user.seed).decode()}\n------END USER NKEY SEED------\n"
    )
    more = (
        f"operator: {operator.jwt(operator, 'operator')}\nresolver: MEMORY\nsystem_account: {system.public}\n"
        f"resolver_preload: {{ {account.public}: {of_account}, "
        f"{system.public}: {system.jwt(operator, 'account', limits=unlimited)} }}"
    )
    with nats_server(tmp_path, more=more) as server:
        round_trip(server.uri("ticks", f"?creds={tmp_path / 'user.creds'}"))
        with pytest.raises(JournalError, match="refuses the credentials"):
            Journal(server.uri("ticks"))
