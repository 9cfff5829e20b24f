"""TLS settings: what may be set, what wins, and what is said about files that cannot be used."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any

import pytest

import afflux
from afflux import AddressError, Tls
from afflux.transports.address import parse
from afflux.transports.security import client_context, public, server_context, server_name, settled
from tests.transports.certificates import Certificates

HERE = parse("tls://127.0.0.1:7000")


class Echo:
    """A handler that is never called."""

    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        """Return the payload."""
        return payload


def test_the_address_wins() -> None:
    address = parse("tls://h:1?ca=a.pem&cert=c.pem&name=n.example&client_ca=d.pem")
    given = Tls(ca="x.pem", cert="y.pem", key="z.pem", server_name="y.example")
    assert settled(given, address) == Tls(ca="a.pem", cert="c.pem", server_name="n.example", client_ca="d.pem")
    assert settled(given, HERE) == given
    assert settled(None, HERE) == Tls()
    assert settled(None, parse("tcp://h:1")) is None
    assert settled(Tls(cert="c.pem"), parse("tls://h:1?key=k.pem")) == Tls(cert="c.pem", key="k.pem")


def test_the_name_that_a_certificate_has_to_bear() -> None:
    assert server_name(None, HERE) == "127.0.0.1"
    assert server_name(Tls(server_name="a.example"), HERE) == "a.example"


def test_clients_do_not_see_options_of_the_server() -> None:
    address = parse("tls://h:1?cert=c.pem&key=k.pem&client_ca=d.pem&ca=a.pem&mtu=64")
    assert str(public(address)) == "tls://h:1?ca=a.pem&mtu=64"


def test_what_contradicts_itself(certificates: Certificates) -> None:
    with pytest.raises(AddressError, match=r"the key k.pem needs its certificate: cert="):
        Tls(key="k.pem")
    with pytest.raises(AddressError, match="context= is used unchanged and cannot be combined with ca, client_ca"):
        Tls(context=ssl.create_default_context(), ca="a.pem", client_ca="b.pem")
    with pytest.raises(AddressError, match="context= is used unchanged"):
        afflux.connect("tls://h:1?ca=a.pem", tls=Tls(context=ssl.create_default_context()))
    with pytest.raises(AddressError, match="context= is used unchanged"):
        afflux.serve("tls://h:1?cert=a.pem", Echo(), tls=Tls(context=ssl.create_default_context()))
    with pytest.raises(AddressError, match=r"the key k.pem needs its certificate"):
        afflux.sync.connect("tls://h:1?key=k.pem")


def test_safe_by_default(certificates: Certificates) -> None:
    for context in (client_context(None, HERE), client_context(certificates.to_connect, HERE)):
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    context = server_context(certificates.to_serve)
    assert context.verify_mode is ssl.CERT_NONE
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    context = server_context(Tls(cert=certificates.server, client_ca=certificates.ca))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert client_context(None, HERE) is client_context(Tls(), HERE)  # the system's roots are read once


def test_a_folder_of_roots(certificates: Certificates, tmp_path: Path) -> None:
    """OpenSSL finds the files of a folder by their hashes, so a folder of other names has no authorities."""
    with pytest.raises(AddressError, match=r"ca: the folder .* has no certificates under their hashes: run openssl re"):
        client_context(Tls(ca=certificates.folder), HERE)
    (tmp_path / "0a1b2c3d.0").write_bytes(certificates.ca.read_bytes())
    assert client_context(Tls(ca=tmp_path), HERE).verify_mode is ssl.CERT_REQUIRED


def test_a_client_with_a_certificate_trusts_the_system(certificates: Certificates) -> None:
    assert client_context(Tls(cert=certificates.client), HERE).verify_mode is ssl.CERT_REQUIRED


def test_a_ready_context_is_taken_as_it_is() -> None:
    context = ssl.create_default_context()
    assert client_context(Tls(context=context, server_name="a.example"), HERE) is context
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    assert server_context(Tls(context=context), HERE) is context


async def test_a_context_of_the_other_side_is_refused_at_once(certificates: Certificates) -> None:
    with pytest.raises(
        AddressError, match=r"context= is for clients; a server needs ssl\.create_default_context\(ssl\.P"
    ):
        await afflux.serve("tls://127.0.0.1:0", Echo(), tls=Tls(context=ssl.create_default_context()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server)
    async with afflux.serve("tls://127.0.0.1:0", Echo(), tls=Tls(context=context)) as server:
        with pytest.raises(AddressError, match=r"context= is for servers; a client needs ssl\.create_d"):
            await afflux.connect(server.uri, tls=Tls(context=context))
        with pytest.raises(AddressError, match=r"context= is for servers; a client needs ssl\.create_d"):
            afflux.sync.connect(server.uri, tls=Tls(context=context))


def test_settings_of_a_wrong_type() -> None:
    wrong: Any = 3
    with pytest.raises(TypeError, match=r"server_name= is text, such as 'server\.example', not int"):
        Tls(server_name=wrong)
    with pytest.raises(TypeError, match=r"context= is an ssl\.SSLContext, not int"):
        Tls(context=wrong)
    with pytest.raises(AddressError, match="ca= is empty: it is the path of a file"):
        Tls(ca="")
    wrong = ssl.create_default_context()
    with pytest.raises(TypeError, match=r"tls= is an afflux\.Tls, such as afflux\.Tls\(context=…\), not <ssl"):
        afflux.connect("tls://h:1", tls=wrong)


def locked(path: Path) -> Path:
    """The key of a file, behind a passphrase."""
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(path.read_bytes(), None)
    made = path.with_name("locked.pem")
    made.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    return made


def test_files_that_can_not_be_used(certificates: Certificates, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nothing of use")
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    missing = tmp_path / "missing.pem"
    good = certificates.server
    cert, key = certificates.part(good, "CERTIFICATE"), certificates.part(good, "PRIVATE KEY")
    other_key = certificates.part(certificates.client, "PRIVATE KEY")
    server = (
        (Tls(), "a TLS server needs a certificate: set cert= and key="),
        (Tls(cert=missing), f"cert: there is no file {missing}"),
        (Tls(cert=tmp_path), f"cert: {tmp_path} cannot be read: Is a directory"),
        (Tls(cert=nonsense), f"cert: {nonsense} has no PEM certificate"),
        (Tls(cert=key), f"cert: {key} has no PEM certificate"),
        (Tls(cert=cert), f"key: {cert} has no PEM private key; set key= as well"),
        (Tls(cert=cert, key=missing), f"key: there is no file {missing}"),
        (Tls(cert=cert, key=nonsense), f"key: {nonsense} has no PEM private key"),
        (Tls(cert=cert, key=other_key), f"key: {other_key} does not belong to the certificate {cert}"),
        (Tls(cert=cert, key=locked(key)), "needs a passphrase"),
        (Tls(cert=broken, key=key), f"cert: {broken} with key {key} cannot be used (one of them is not valid PEM)"),
        (Tls(cert=good, client_ca=missing), f"client_ca: there is no file {missing}"),
    )
    for tls, words in server:
        with pytest.raises(AddressError) as caught:
            server_context(tls, HERE)
        assert words in str(caught.value)
    client = (
        (Tls(ca=missing), f"ca: there is no file {missing}"),
        (Tls(ca=nonsense), f"ca: {nonsense} has no PEM certificate"),
        (Tls(ca=broken), f"ca: {broken} has no readable PEM certificate"),
        (Tls(cert=cert, key=other_key), "does not belong to the certificate"),
    )
    for tls, words in client:
        with pytest.raises(AddressError) as caught:
            client_context(tls, HERE)
        assert words in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file: run as another user")
def test_a_file_that_may_not_be_read(certificates: Certificates, tmp_path: Path) -> None:
    secret = tmp_path / "secret.pem"
    secret.write_bytes(certificates.server.read_bytes())
    secret.chmod(0)
    with pytest.raises(AddressError, match="cannot be read: Permission denied"):
        server_context(Tls(cert=secret), HERE)


async def test_such_files_are_reported_when_entered(certificates: Certificates, tmp_path: Path) -> None:
    for tls in (Tls(cert=tmp_path / "missing.pem"), Tls(cert=certificates.ca)):
        with pytest.raises(AddressError):
            await afflux.serve("tls://127.0.0.1:0", Echo(), tls=tls)
    with pytest.raises(AddressError, match="there is no file"):
        await afflux.connect("tls://127.0.0.1:1", tls=Tls(ca=tmp_path / "missing.pem"))
    with pytest.raises(AddressError, match="there is no file"):
        afflux.sync.connect("tls://127.0.0.1:1", tls=Tls(ca=tmp_path / "missing.pem"))


async def test_a_name_that_can_not_be() -> None:
    for name in (".", "a" * 70, "x..y", "a\0b"):
        with pytest.raises(AddressError, match="TLS cannot send the name"):
            await afflux.connect("tls://127.0.0.1:1", tls=Tls(server_name=name))
