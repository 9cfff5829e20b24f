"""Register the transports. Each is imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from afflux.core.errors import MissingExtra

if TYPE_CHECKING:
    from afflux.transports.base import Transport

__all__ = ["TRANSPORTS", "TransportEntry"]


def _text(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text


def _mode(text: str) -> str:
    if len(text) != 3 or not set(text) <= set("01234567"):
        raise ValueError("permissions are three octal digits, such as 660")
    return text


@dataclass(frozen=True, slots=True)
class TransportEntry:
    """One transport."""

    name: str
    "The name in an address."
    module: str
    "The module with its ``TRANSPORT`` object."
    authority: Literal["host", "name", "path"] = "host"
    "The part after ``//``: host and port, a name, or a file's path."
    port: int | None = None
    "The port when the address has none."
    options: tuple[tuple[str, Callable[[str], Any]], ...] = ()
    "Options that an address may set in addition to the protocol's, with the parser of each."
    messages: bool = False
    "It preserves the boundaries of messages, so frames travel without their length prefix."
    extra: tuple[str, str, str] | None = None
    "The feature's name in errors, the extra that it needs, and the library of the extra; None without an extra."
    first: tuple[str, ...] = ()
    "Modules that its first connection under asyncio imports."

    @property
    def secure(self) -> bool:
        """Whether it has TLS."""
        return any(name == "ca" for name, _ in self.options)

    def load(self) -> Transport:
        """Import the transport.

        Raises:
            MissingExtra: it needs a library that is not installed.
        """
        try:
            transport: Transport = import_module(self.module).TRANSPORT
        except ModuleNotFoundError as error:
            if self.extra is None or str(error.name).partition(".")[0] != self.extra[2]:
                raise
            raise MissingExtra(*self.extra[:2]) from None
        return transport

    def load_first(self) -> None:
        """Import the modules of ``first``."""
        for module in self.first:
            import_module(module)


_LOOKUP: Final = "encodings.idna"
"The codec of host names, which asyncio imports to listen and to connect."
_TLS: Final = tuple((name, _text) for name in ("ca", "cert", "key", "name", "client_ca"))
_WS: Final = ("WebSocket", "ws", "websockets")

TRANSPORTS: Final = {
    entry.name: entry
    for entry in (
        TransportEntry("tcp", "afflux.transports.tcp", first=(_LOOKUP,)),
        TransportEntry("tls", "afflux.transports.tls", options=_TLS, first=(_LOOKUP, "afflux.transports.tls_aio")),
        TransportEntry(
            "ws",
            "afflux.transports.websocket",
            port=80,
            messages=True,
            extra=_WS,
            first=(_LOOKUP, "afflux.transports.ws_link", "afflux.transports.tcp"),
        ),
        TransportEntry(
            "wss",
            "afflux.transports.websocket",
            port=443,
            options=_TLS,
            messages=True,
            extra=_WS,
            first=(_LOOKUP, "afflux.transports.ws_link", "afflux.transports.tls", "afflux.transports.tls_aio"),
        ),
        TransportEntry("unix", "afflux.transports.unix", "path", options=(("mode", _mode),)),
        TransportEntry("mem", "afflux.transports.mem", "name"),
    )
}
"Every transport that an address may name."
