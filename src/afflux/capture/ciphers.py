"""Derive the keys of TLS 1.2 and 1.3 connections from their secrets, and decrypt records (RFC 5246, RFC 8446).

Only suites with authenticated encryption: AES-GCM, AES-CCM and ChaCha20-Poly1305. Needs the extra ``tls``.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from afflux.core.errors import MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

__all__ = ["SUITES", "Keys", "Suite", "master_keys", "needed", "next_secret", "traffic_keys"]

TLS13: Final = 0x0304


class _Cipher(Protocol):
    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Suite:
    """The part of a cipher suite that encrypts records."""

    cipher: str
    "AES-GCM, AES-CCM, AES-CCM-8 or ChaCha20-Poly1305."
    key: int
    "Bytes of the key."
    digest: str
    "The hash function of the key derivation."

    def __str__(self) -> str:
        return self.cipher.replace("AES", f"AES-{8 * self.key}")


def _suites() -> dict[int, Suite]:
    """Return the suites by number. In TLS 1.2 the even and the odd number of a pair differ in the size of the key."""
    gcm = (*range(0x009C, 0x00AE, 2), 0xC02B, 0xC02D, 0xC02F, 0xC031, 0xD001)
    ccm = (0xC09C, 0xC09E, 0xC0A4, 0xC0A6, 0xC0AC)
    found: dict[int, Suite] = {}
    for number in (*((one, one + 1) for one in gcm), (0x1301, 0x1302)):
        found |= {number[0]: Suite("AES-GCM", 16, "sha256"), number[1]: Suite("AES-GCM", 32, "sha384")}
    for first in ccm:
        eight = 2 if first == 0xC0AC else 4
        for even, name in ((first, "AES-CCM"), (first + eight, "AES-CCM-8")):
            found |= {even: Suite(name, 16, "sha256"), even + 1: Suite(name, 32, "sha256")}
    found |= dict.fromkeys((0x1304, 0xD005), Suite("AES-CCM", 16, "sha256"))
    found |= dict.fromkeys((0x1305, 0xD003), Suite("AES-CCM-8", 16, "sha256"))
    found |= dict.fromkeys((0x1303, *range(0xCCA8, 0xCCAF)), Suite("ChaCha20-Poly1305", 32, "sha256"))
    return found


SUITES: Final = _suites()
"The suites that can be decrypted, by number."


def needed() -> None:
    """Raise MissingExtra unless the library that decrypts is installed."""
    try:
        import cryptography  # noqa: F401  # an extra
    except ImportError:
        raise MissingExtra("decrypting TLS", "tls") from None


class Keys:
    """The keys of one direction. Decrypts its records in order.

    Args:
        suite: the cipher.
        key: the key.
        iv: the fixed part of the nonce: 12 bytes, or 4 if records contain the rest.
        modern: the records are of TLS 1.3.
    """

    __slots__ = ("_cipher", "_explicit", "_iv", "_modern", "_number", "_tag")

    def __init__(self, suite: Suite, key: bytes, iv: bytes, *, modern: bool) -> None:
        self._cipher = _CIPHERS[suite.cipher](key)
        self._tag = 8 if suite.cipher == "AES-CCM-8" else 16
        self._iv = iv
        self._explicit = 12 - len(iv)
        self._modern = modern
        self._number = 0

    def open(self, head: bytes, body: bytes) -> bytes | None:
        """Return the content of the next record; None if it is not encrypted with these keys.

        Args:
            head: the five bytes before the record.
            body: the record.
        """
        explicit = self._explicit
        if len(body) < explicit + self._tag:
            return None
        number = self._number.to_bytes(8, "big")
        if explicit:
            nonce = self._iv + body[:explicit]
        else:
            nonce = (int.from_bytes(self._iv, "big") ^ self._number).to_bytes(12, "big")
        size = len(body) - explicit - self._tag
        aside = head if self._modern else number + head[:3] + size.to_bytes(2, "big")
        from cryptography.exceptions import InvalidTag

        try:
            made = self._cipher.decrypt(nonce, body[explicit:], aside)
        except InvalidTag:
            return None
        self._number += 1
        return made


def traffic_keys(suite: Suite, secret: bytes) -> Keys:
    """Return the keys of a direction of TLS 1.3 (RFC 8446, 7.3)."""
    key = _expand(suite, secret, b"key", suite.key)
    return Keys(suite, key, _expand(suite, secret, b"iv", 12), modern=True)


def next_secret(suite: Suite, secret: bytes) -> bytes:
    """Return the traffic secret after a key update (RFC 8446, 7.2)."""
    return _expand(suite, secret, b"traffic upd", len(secret))


def master_keys(suite: Suite, master: bytes, client: bytes, server: bytes) -> tuple[Keys, Keys]:
    """Return the keys of the client and of the server in TLS 1.2 (RFC 5246, 6.3).

    Args:
        suite: the cipher.
        master: the master secret.
        client: the client random.
        server: the server random.
    """
    iv = 12 if suite.cipher.startswith("ChaCha20") else 4
    seed = b"key expansion" + server + client
    block, step = b"", seed
    while len(block) < 2 * (suite.key + iv):
        step = hmac.digest(master, step, suite.digest)
        block += hmac.digest(master, step + seed, suite.digest)
    ivs = 2 * suite.key
    first = Keys(suite, block[: suite.key], block[ivs : ivs + iv], modern=False)
    return first, Keys(suite, block[suite.key : ivs], block[ivs + iv : ivs + 2 * iv], modern=False)


def _expand(suite: Suite, secret: bytes, label: bytes, size: int) -> bytes:
    """HKDF-Expand-Label without a context (RFC 8446, 7.1)."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    digest: HashAlgorithm = hashes.SHA384() if suite.digest == "sha384" else hashes.SHA256()
    label = b"tls13 " + label
    info = size.to_bytes(2, "big") + bytes((len(label),)) + label + b"\0"
    return HKDFExpand(digest, size, info).derive(secret)


def _aes_gcm(key: bytes) -> _Cipher:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _aes_ccm(key: bytes, tag: int = 16) -> _Cipher:
    from cryptography.hazmat.primitives.ciphers.aead import AESCCM

    return AESCCM(key, tag)


def _chacha20(key: bytes) -> _Cipher:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key)


_CIPHERS: Final[dict[str, Callable[[bytes], _Cipher]]] = {
    "AES-GCM": _aes_gcm,
    "AES-CCM": _aes_ccm,
    "AES-CCM-8": lambda key: _aes_ccm(key, 8),
    "ChaCha20-Poly1305": _chacha20,
}
