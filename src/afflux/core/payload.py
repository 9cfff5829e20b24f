"""The value that applications send and receive. Nothing about frames lives here."""

from __future__ import annotations

__all__ = ["Payload", "PayloadLike", "payload_of"]


class Payload:
    """Data with optional metadata.

    Treat it as a value: two payloads are equal when data and metadata are. It is a plain slotted
    class and not a frozen dataclass because one is born for each item received, and a frozen
    ``__init__`` costs four times as much.
    """

    __slots__ = ("data", "metadata")

    data: bytes
    "The application's bytes."
    metadata: bytes | None
    "Bytes beside the data, or None when there is none: empty metadata (``b''``) is not None."

    def __init__(self, data: bytes = b"", metadata: bytes | None = None) -> None:
        self.data = data
        self.metadata = metadata

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Payload):
            return NotImplemented
        return self.data == other.data and self.metadata == other.metadata

    def __hash__(self) -> int:
        return hash((self.data, self.metadata))

    def __len__(self) -> int:
        """Bytes of data and metadata together."""
        return len(self.data) + (len(self.metadata) if self.metadata is not None else 0)

    def __bool__(self) -> bool:
        """Always true: an empty payload is still a payload."""
        return True

    def __repr__(self) -> str:
        # Credentials travel in metadata (AU-05): it is told that there is some, not what.
        metadata = "" if self.metadata is None else f", metadata=({len(self.metadata)} bytes)"
        return f"Payload({_short(self.data)}{metadata})"

    @property
    def text(self) -> str:
        """The data as UTF-8 text; bytes that are not UTF-8 become U+FFFD."""
        return str(self.data, "utf-8", "replace")


PayloadLike = Payload | bytes | bytearray | memoryview | str
"What the verbs take: a payload, or data without metadata; text is sent as UTF-8."


def payload_of(value: PayloadLike) -> Payload:
    """The payload that ``value`` stands for.

    Raises:
        TypeError: ``value`` is neither a payload, nor bytes, nor text.
    """
    if isinstance(value, Payload):
        return value
    if isinstance(value, bytes):
        return Payload(value)
    if isinstance(value, str):
        return Payload(value.encode())
    if isinstance(value, (bytearray, memoryview)):
        return Payload(bytes(value))
    raise TypeError(f"a payload is bytes, text or afflux.Payload, not {type(value).__name__}")


def _short(data: bytes) -> str:
    return repr(data) if len(data) <= 40 else f"{data[:32]!r}… ({len(data)} bytes)"
