"""List the peers: their location, how they are started, and why they cannot run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from interop import rsocket_java

__all__ = ["PEERS", "Peer"]

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Peer:
    """One implementation."""

    name: str
    title: str
    packages: str
    "The installed packages, for the report."
    tells_leases: bool = False
    "Whether its requests fail without a lease and it reports leases; requests of others wait."
    script: str = ""
    'The node script; "" for Python and Java.'
    java: bool = False
    optional: bool = False
    "Whether a run without it succeeds, because not every machine can have it."

    @property
    def command(self) -> tuple[str, ...]:
        """Return its command."""
        if self.java:
            return rsocket_java.command()
        return ("node", str(HERE / self.script)) if self.script else (sys.executable, "-m", "interop.rsocket_py")

    def why_not(self) -> str | None:
        """Return why it cannot run here, and the remedy; None if it can. Installs packages with npm or Maven."""
        if self.java:
            return rsocket_java.why_not()
        if not self.script:
            return None if _has("rsocket") else "the package rsocket is not here: make setup"
        return _node(HERE)

    def version(self) -> str:
        """Return its version; for npm the exact required one."""
        if self.java:
            return rsocket_java.version()
        if not self.script:
            return metadata.version("rsocket")
        wanted = json.loads((HERE / Path(self.script).parent / "package.json").read_text())
        return str(wanted["dependencies"]["rsocket-core"])


def _has(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


@cache
def _node(home: Path) -> str | None:
    """Return why the JavaScript peers cannot run. Installs them once per lock file; runs once."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            return f"{tool} not found: install Node.js 18 or newer (Debian: apt-get install nodejs npm)"
    lock = home / "package-lock.json"
    mark = home / "node_modules" / "installed.json"
    if mark.exists() and mark.read_text() == lock.read_text():
        return None
    try:
        done = subprocess.run(
            ("npm", "ci", "--no-audit", "--no-fund"), cwd=home, capture_output=True, text=True, timeout=90, check=False
        )
    except subprocess.TimeoutExpired:
        return "npm ci in interop/ did not finish within 90 s: is the npm registry reachable?"
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
        return f"npm ci in interop/ failed ({(last or ['no output'])[0][:120]}): is the npm registry reachable?"
    mark.write_text(lock.read_text())
    return None


PEERS = {
    peer.name: peer
    for peer in (
        Peer("rsocket-py", "rsocket-py 0.4.20", "PyPI: rsocket"),
        Peer("rsocket-js-0", "rsocket-js 0.0.27", "npm: rsocket-core and its transports", True, "js0/peer.js"),
        Peer("rsocket-js-1", "rsocket-js 1.0.0-alpha.3", "npm: rsocket-core and its transports", script="js1/peer.js"),
        Peer("rsocket-java", "rsocket-java 1.1", "Maven: io.rsocket", java=True, optional=True),
    )
}
"Every peer by name."
