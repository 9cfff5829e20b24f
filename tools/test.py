"""Run the parts of ``make test``, five at a time: ``python -m tools.test [PART…]``.

Without arguments all ``PARTS`` run; ``tests`` means those with tests. The output of a part is shown in
one piece when the part ends, and the result of each part at the end. The exit code is 1 when a part has failed.
The parts of ``FIRST`` take seconds; where one of them fails, the others do not start.
``ROUNDS`` repeat tests on other builds or with more examples, or run the long ones; they run only when they are named.
A part leaves out the tests with the mark ``long``, and tries fewer random examples than a single run of pytest.

Every folder and file of tests belongs to one part: ``rest`` runs what no other part names.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock

from tests.spark.starting import quick_start

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test"
AT_ONCE = 5
"Parts that start processes wait half of the time: with more than twice as many as there are cores, none is idle."
LONGEST = 1800
"Seconds that a command may take. Then it is aborted, and its log shows where each of its threads was."

FOLDERS = {
    "generated": [
        "tests/test_citations.py",
        "tests/test_conformance.py",
        "tests/test_frame_pages.py",
        "tests/test_parts.py",
        "tests/test_reference.py",
    ],
    "layout": ["tests/test_layout.py", "tests/test_public.py"],
    "spark": ["tests/spark"],
    "kills": [
        "tests/spark/test_chaos.py",
        "tests/spark/test_decode_interrupted.py",
        "tests/spark/test_decode_killed.py",
        "tests/spark/test_driver_killed.py",
    ],
    "demos": ["tests/demo"],
    "commands": ["tests/cli"],
    "reports": [
        "tests/bench",
        "tests/cli/test_capture.py",
        "tests/cli/test_captures.py",
        "tests/cli/test_check_captures.py",
        "tests/cli/test_decode.py",
        "tests/cli/test_inspect.py",
        "tests/cli/test_inspect_report.py",
        "tests/cli/test_spark_decode.py",
        "tests/cli/test_tables.py",
    ],
    "rest": [],
    "queries": [
        "tests/spark/test_benchmark.py",
        "tests/spark/test_benchmark_all.py",
        "tests/spark/test_embedded.py",
        "tests/spark/test_tail.py",
    ],
    "mistakes": [
        "tests/cli/test_conflicts.py",
        "tests/cli/test_every_command.py",
        "tests/cli/test_exits.py",
        "tests/cli/test_interrupts.py",
        "tests/cli/test_limiting.py",
        "tests/cli/test_mistakes.py",
        "tests/cli/test_servers_gone.py",
    ],
    "captures": ["tests/capture"],
    "honest": ["tests/honest"],
    "drivers": ["tests/aio", "tests/sync"],
    "links": ["tests/transports", "tests/testing", "tests/peers"],
    "inner": ["tests/core", "tests/protocols", "tests/sessions"],
    "repetitive": ["tests/core", "tests/protocols", "tests/sessions"],
    "pages": ["tests/test_docs.py", "tests/test_examples.py", "tests/test_readme.py", "tests/test_site.py"],
    "tables": ["tests/reactive", "tests/journal", "tests/resume"],
    "hostile": ["tests/hostile", "tests/conformance"],
}
"""What the parts with tests name; a file that one part names is not in the folders of another.

The longest are first, so that no core is idle at the end. ``kills`` and ``demos`` start a JVM for each of their tests;
``spark`` and ``queries`` have one for all. The first ones wait often, and ``wheel`` and ``types`` compute meanwhile.
"""
FIRST = ("lint", "generated", "layout")
"What finds mistakes in seconds. Their commands do not start processes that last."
WITH_SPARK = {"spark", "kills", "demos", "queries", "long"}
"Their JVMs start with an archive of Spark's classes: tests/spark/starting.py."
PREPARED = {
    "tests.spark.starting": WITH_SPARK,
    "tests.capture.building": {*WITH_SPARK, "captures", "commands", "reports"},
}
"Modules that make what many processes of these parts would make for themselves. Tests pass without."
PREPARING = {module: Lock() for module in PREPARED}
"Held while one is made; parts that do not need it run meanwhile."

PYTEST = [sys.executable, "-m", "pytest", "-q"]
MARKED = {
    "inner": ["--cov", "--cov-report=term-missing", "-m", "not repetitive and not hypothesis and not long"],
    "repetitive": ["-m", "(repetitive or hypothesis) and not long"],
}
"""``inner`` measures coverage. Measured tests take three times as long: those that repeat the same lines are excluded,
and those of random examples, so that coverage does not depend on luck."""
RUFF = str(Path(sys.executable).with_name("ruff"))
SMOKE = ["--hypothesis-profile=smoke", "-m", "not long"]
"Options of every part; those of MARKED come later and count."
LONG = ["-m", "long", "-o", "timeout=1800"]
RANDOM = ["--hypothesis-profile=long", "-m", "hypothesis or repetitive", "-o", "timeout=1800"]
ONCE = "not slow and not spark and not repetitive and not hypothesis and not long"

PARTS = {
    "lint": [[RUFF, "check", "."], [RUFF, "format", "--check", "."]],
    "types": [[sys.executable, "-m", "mypy"]],
    "wheel": [["tools/compiled.sh", sys.executable, "smoke"]],
    **{name: [[*PYTEST, *SMOKE, *folders]] for name, folders in FOLDERS.items()},
}
TESTS = [name for name in PARTS if name not in ("lint", "types")]
ROUNDS = {
    "compiled": [["tools/compiled.sh", sys.executable]],
    "compiled-all": [["tools/compiled.sh", sys.executable, "all"]],
    "optimized": [[sys.executable, "-O", *PYTEST[1:], "-m", ONCE, *FOLDERS["inner"], "tests/aio"]],
    "long": [[*PYTEST, *LONG]],
    "random": [["env", "AFFLUX_EXHAUSTIVE=1", *PYTEST, *RANDOM]],
}
"""``compiled`` leaves out what can hardly differ in a compiled build (tools/compiled.sh), ``compiled-all`` does not;
the part ``wheel`` builds the same wheel and runs a fifth of the tests of ``compiled``.
``long`` runs the tests with this mark, of which the parts run a short version.
``random`` tries twenty times as many random examples, breaks links at every byte, and decodes captures of 10 GB and of
ten million connections. ``optimized`` excludes
repetitions and random examples: no source file contains an assert statement or ``__debug__`` (tests/test_layout.py), so
all that ``-O`` can change is what a line does each time it runs."""


LONGER = {"compiled-all", "long", "random"}
"Rounds that may take four times as long as a part."


def rest():
    """Return the tests that no part names."""
    named = {ROOT / folder for folders in FOLDERS.values() for folder in folders}
    tests = {path.parent for path in ROOT.glob("tests/*/**/test_*.py")} | set(ROOT.glob("tests/test_*.py"))
    return sorted(str(path.relative_to(ROOT)) for path in tests if not named & {path, *path.parents})


def elsewhere(name):
    """Return the options that exclude what other parts name within the folders of a part."""
    own = [ROOT / folder for folder in FOLDERS.get(name, [])]
    others = [path for part, paths in FOLDERS.items() if part != name for path in paths]
    return [f"--ignore={path}" for path in others if any(folder in (ROOT / path).parents for folder in own)]


def commands(name):
    """The commands of a part, which run one after the other until one fails."""
    for command in (PARTS | ROUNDS)[name]:
        if "pytest" not in command:
            yield command
        else:
            more = rest() if name == "rest" else MARKED.get(name, [])
            yield [*command, *more, *elsewhere(name), "-o", f"cache_dir=.pytest_cache/{name}"]


def run(name):
    """Run a part. Returns its name, whether it passed, and its seconds; its output is in its log."""
    since = time.monotonic()
    # Without bytecode each process compiles what it imports: 0.5 s for the asyncio driver, otherwise 0.2 s.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    prepare(name)
    environment |= quick_start() if name in WITH_SPARK else {}
    environment |= {"AFFLUX_FORKED_READERS": "1"} if name in ("spark", "long") else {}  # tests/spark/forking.py
    with (LOGS / f"{name}.log").open("wb") as log:
        longest = LONGEST * 4 if name in LONGER else LONGEST
        passed = all(succeeds(command, environment, log, longest) for command in commands(name))
    return name, passed, time.monotonic() - since


def prepare(name):
    """Make what a part needs, unless it is there."""
    for module, parts in PREPARED.items():
        if name in parts:
            with PREPARING[module]:
                subprocess.run([sys.executable, "-m", module], cwd=ROOT, stderr=subprocess.DEVNULL, check=False)


def succeeds(command, environment, log, longest):
    """Whether this command exits with 0 in ``longest`` seconds; what it prints goes to the log."""
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    ) as process:
        try:
            return process.wait(longest) == 0
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # pytest has faulthandler print the stack of each thread
            log.write(f"\naborted after {longest} s: {' '.join(command)}\n".encode())
            return False


def together(names):
    """Run these parts, some at a time; return the name of each, whether it passed, and its seconds."""
    results = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in as_completed([pool.submit(run, name) for name in names]):
            name, passed, seconds = done.result()
            results.append((name, passed, seconds))
            print(f"\n== {name}: {seconds:.0f} s", flush=True)
            print((LOGS / f"{name}.log").read_text(errors="replace"), end="", flush=True)
    return results


def worked():
    """Return the seconds that the processors have worked: for all processes on Linux, elsewhere for ended children.

    A JVM ends after the process that started it, so that only the kernel counts its seconds.
    """
    try:
        user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    except OSError:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def main(names):
    """Run these parts; return the exit code."""
    names = [part for name in names for part in (TESTS if name == "tests" else [name])]
    unknown = [name for name in names if name not in PARTS | ROUNDS]
    if unknown:
        print(f"unknown part {', '.join(unknown)}; available: {', '.join(PARTS | ROUNDS)}")
        return 2
    names = names or list(PARTS)
    LOGS.mkdir(parents=True, exist_ok=True)
    since = time.monotonic()
    print(f"running {', '.join(names)}; logs in {LOGS.relative_to(ROOT)}", flush=True)
    before = worked()
    results = together([name for name in names if name in FIRST])
    skipped = [] if all(passed for _, passed, _ in results) else [name for name in names if name not in FIRST]
    results += together([name for name in names if name not in {*FIRST, *skipped}])
    whole = time.monotonic() - since
    busy = (worked() - before) / whole / (os.cpu_count() or 1)
    print(f"\n== summary: {whole:.0f} s, in which the processors were busy for {100 * busy:.0f} %")
    if skipped:
        print(f"not started, because of the failure: {', '.join(skipped)}")
    for name, passed, seconds in sorted(results, key=lambda result: result[1], reverse=True):
        print(f"{name:10} {seconds:5.0f} s  {'passed' if passed else 'FAILED'}")
    failed = [name for name, passed, _ in results if not passed]
    print(f"== failed: {', '.join(failed)}" if failed else "== all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
