"""rsocket-java as a peer: ``Bench`` in interop/java, which interop/rsocket_java.py builds where its jars are."""

from __future__ import annotations

from interop import rsocket_java

__all__ = ["command", "versions", "why_not"]

why_not = rsocket_java.why_not


def command(role: str, *arguments: str) -> list[str]:
    """Return the command of one end."""
    return ["java", "-cp", rsocket_java.class_path(), "interop.Bench", role, *arguments]


def versions() -> dict[str, str]:
    """Return its version."""
    return {"rsocket-java": rsocket_java.version()}
