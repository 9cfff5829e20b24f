"""Certificates for the tests of TLS: one authority that is trusted, one that is not, and what they signed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import afflux

DAY = timedelta(days=1)


class Certificates:
    """PEM files in a folder. Each certificate is one file, its key behind it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ours, self._theirs = trustme.CA(), trustme.CA()
        self.ca = self._write("ca", self._ours.cert_pem)
        self.other_ca = self._write("other-ca", self._theirs.cert_pem)
        self.server = self.issue("127.0.0.1", "localhost", "::1")
        self.client = self.issue("client.example")

    def issue(self, *names: str, trusted: bool = True, days: tuple[int, int] | None = None) -> Path:
        """A certificate; ``days`` from now say when it begins and ends."""
        authority = self._ours if trusted else self._theirs
        now = datetime.now(UTC)
        times = {} if days is None else {"not_before": now + days[0] * DAY, "not_after": now + days[1] * DAY}
        made = authority.issue_cert(*names, **times)
        return self._write(f"cert-{len(list(self.folder.iterdir()))}", made.private_key_and_cert_chain_pem)

    def nameless(self, common: str) -> bytes:
        """A self-signed certificate that has a common name only, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - DAY, now + DAY)
        cert = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        pem = serialization.Encoding.PEM
        formed = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return cert.sign(key, hashes.SHA256()).public_bytes(pem) + formed

    def part(self, path: Path, kind: str) -> Path:
        """A file with only the CERTIFICATE or the PRIVATE KEY of another."""
        lines, keep = [], False
        for line in path.read_text().splitlines(keepends=True):
            keep = keep or (line.startswith("-----BEGIN") and kind in line)
            if keep:
                lines.append(line)
            keep = keep and not line.startswith("-----END")
        made = path.with_suffix(f".{kind.lower().replace(' ', '-')}.pem")
        made.write_text("".join(lines))
        return made

    @property
    def to_serve(self) -> afflux.Tls:
        """What a server needs."""
        return afflux.Tls(cert=self.server)

    @property
    def to_connect(self) -> afflux.Tls:
        """What a client needs."""
        return afflux.Tls(ca=self.ca)

    def _write(self, name: str, blob: trustme.Blob) -> Path:
        path = self.folder / f"{name}.pem"
        path.write_bytes(blob.bytes())
        return path
