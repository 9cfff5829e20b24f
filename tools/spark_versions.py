"""Run tests of the Spark source with older versions of Spark: ``make spark-versions``.

Each version has a virtual environment of its own in ``build/spark-VERSION``, which has pyspark and py4j. All other
packages are those of the environment that this runs in. The tests are those of ``TESTS``; one that needs a newer Spark
skips itself, and says so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

__all__ = ["TESTS", "VERSIONS", "environment"]

HERE = Path(__file__).resolve().parents[1]
VERSIONS = ("4.0.5", "4.1.4", "4.2.1")
"The last release of each minor version before that of requirements/lock.txt."
TESTS = ("tests/spark/test_source.py", "tests/spark/test_versions.py")
"What they read and write."
OWN = ("-W", "ignore::pytest.PytestUnraisableExceptionWarning")
"Spark 4.0 leaves sockets open."


def environment(version: str) -> Path:
    """Return the Python of a version's environment; create it if it is missing."""
    home = HERE / "build" / f"spark-{version}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*command, f"pyspark=={version}"], check=True)
        paths = [str(HERE / "src"), sysconfig.get_path("purelib")]
        own = subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        )
        (Path(own.strip()) / "afflux-others.pth").write_text("\n".join(paths) + "\n")
        (home / "ready").touch()
    return python


def main() -> int:
    """Run the tests with each version; return 1 if one has failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS, help=f"by default {', '.join(VERSIONS)}")
    failed = []
    for version in parser.parse_args().versions:
        print(f"Spark {version}", flush=True)
        command = [str(environment(version)), "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *OWN, *TESTS]
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if subprocess.run(command, cwd=HERE, env=clean | {"AFFLUX_SPARK": version}, check=False).returncode:
            failed.append(version)
    if failed:
        print(f"failed: Spark {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
