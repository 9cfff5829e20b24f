"""What a build makes: a pure wheel, a compiled one, and a pure one with a reason where it can not be compiled.

``make test`` and ``make compiled`` build the compiled wheel, install it and run tests on it with
AFFLUX_EXPECT_COMPILED=1: then this file proves that it is in use, and otherwise that the source is.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

import pytest

import afflux
from afflux.core import buffer
from afflux.core.frame import Frame
from afflux.protocols.rsocket import frames
from afflux.protocols.rsocket_draft.payload import ExtendedPayload

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "how-to" / "compiled.md").read_text(encoding="utf-8")
INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
COMPILED = os.environ.get("AFFLUX_EXPECT_COMPILED") == "1"
EXTENSION = sysconfig.get_config_var("EXT_SUFFIX")
PURE = f"afflux-{afflux.__version__}-py3-none-any.whl"

compiled_only = pytest.mark.skipif(not COMPILED, reason="runs on the compiled build: make tests PARTS=wheel")
source_only = pytest.mark.skipif(COMPILED, reason="runs on the pure build: make test")


def tool() -> ModuleType:
    """tools/compiled.py."""
    return import_module("tools.compiled")


def build(folder: Path, target: str = "wheel", **variables: str) -> tuple[Path, str]:
    """What is built, and what is said meanwhile."""
    env = {key: value for key, value in os.environ.items() if key not in ("AFFLUX_MYPYC", "AFFLUX_HOME")} | variables
    words = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = folder.iterdir()
    return made, done.stderr


def description(wheel: Path) -> str:
    """The metadata of a wheel, with the README behind the headers."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(f"afflux-{afflux.__version__}.dist-info/METADATA").decode()


@source_only
def test_without_a_home_a_wheel_has_no_address_and_its_readme_no_link_to_a_file(tmp_path: Path) -> None:
    headers, _, text = description(build(tmp_path)[0]).partition("\n\n")
    assert "Description-Content-Type: text/markdown" in headers
    assert "Project-URL" not in headers and "Home-page" not in headers
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert "https://rsocket.io" in links
    assert [target for target in links if not target.startswith(("https://", "#"))] == []
    assert "| **Talk** | services and clients" in text


@source_only
def test_with_a_home_a_wheel_has_urls_and_its_readme_links_that_work_on_an_index(tmp_path: Path) -> None:
    home = "https://forge.example/afflux/afflux"
    headers, _, text = description(build(tmp_path, AFFLUX_HOME=f"{home}/")[0]).partition("\n\n")
    assert sorted(re.findall(r"^Project-URL: (.*)$", headers, re.MULTILINE)) == [
        f"Changelog, {home}/blob/HEAD/CHANGELOG.md",
        f"Documentation, {home}/blob/HEAD/docs/README.md",
        f"Issues, {home}/issues",
        f"Source, {home}",
    ]
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert [target for target in links if not target.startswith(("https://", "#"))] == []
    ours = [target.removeprefix(home) for target in links if target.startswith(home)]
    assert "/raw/HEAD/docs/img/way.svg" in ours
    files = [target.removeprefix("/raw/HEAD/").removeprefix("/blob/HEAD/").partition("#")[0] for target in ours]
    assert [name for name in files if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    "home", ["forge.example/afflux", "http://forge.example/afflux", "https://forge.example", "x y"]
)
def test_a_home_that_is_no_page_of_a_repository_is_refused(home: str) -> None:
    with pytest.raises(ValueError, match="AFFLUX_HOME is the page of the repository, such as https://"):
        import_module("hatch_build").home_of(home)


def test_relative_links_become_absolute() -> None:
    text = "[a](docs/a.md#x) ![b](img/b.svg) [c](https://c/d) [d](#here) [![e](e.svg)](e.md)"
    assert import_module("hatch_build").with_absolute_links(text, "https://h/p") == (
        "[a](https://h/p/blob/HEAD/docs/a.md#x) ![b](https://h/p/raw/HEAD/img/b.svg) [c](https://c/d) [d](#here) "
        "[![e](https://h/p/raw/HEAD/e.svg)](https://h/p/blob/HEAD/e.md)"
    )


def test_relative_links_become_text() -> None:
    text = "[a](docs/a.md#x) ![b](img/b.svg) [c](https://c/d) [d](#here) [![e](e.svg)](e.md)"
    assert import_module("hatch_build").without_relative_links(text) == "a b [c](https://c/d) [d](#here) e"


def is_pure(wheel: Path, *, editable: bool = False) -> bool:
    """By its name, by what it says and by what is in it."""
    assert wheel.name == PURE
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        told = archive.read(f"afflux-{afflux.__version__}.dist-info/WHEEL").decode()
    assert ("afflux/core/buffer.py" in names) is not editable
    return "Tag: py3-none-any" in told and not [name for name in names if name.endswith((EXTENSION, "/_codecs.py"))]


@source_only
def test_a_wheel_is_pure_unless_asked(tmp_path: Path) -> None:
    wheel, _ = build(tmp_path)
    assert is_pure(wheel)


@source_only
@pytest.mark.parametrize("value", ["", "0"])
def test_nought_is_no(tmp_path: Path, value: str) -> None:
    wheel, told = build(tmp_path, AFFLUX_MYPYC=value, CC="no-such-compiler")
    assert is_pure(wheel)
    assert "afflux:" not in told


@source_only
def test_without_a_compiler_a_wheel_is_pure_and_one_line_states_the_reason(tmp_path: Path) -> None:
    wheel, told = build(tmp_path, AFFLUX_MYPYC="1", CC="no-such-compiler -O2")
    assert is_pure(wheel)
    lines = [line for line in told.splitlines() if line.startswith("afflux: ")]
    assert lines == ["afflux: not compiled, the wheel is pure Python: there is no C compiler (no-such-compiler)"]


@compiled_only
@pytest.mark.slow  # it compiles for 15 s before it fails: make rounds
def test_when_compiling_fails_a_wheel_is_pure_and_the_last_line_reports_it(tmp_path: Path) -> None:
    wheel, told = build(tmp_path, AFFLUX_MYPYC="1", CC="false")
    assert is_pure(wheel)
    assert "afflux: not compiled, the wheel is pure Python: compiling failed\n" in told


@source_only
def test_pip_builds_as_the_page_states(tmp_path: Path) -> None:
    """The first command of docs/how-to/compiled.md, without fetching anything, and without a compiler."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-v", "--no-deps"]
    done = subprocess.run(
        [*pip, "--no-build-isolation", "--target", str(tmp_path), ".[cli]"],
        cwd=ROOT,
        env=os.environ | {"AFFLUX_MYPYC": "1", "CC": "no-such-compiler"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "afflux: not compiled, the wheel is pure Python: there is no C compiler" in done.stdout + done.stderr
    assert (tmp_path / "afflux" / "core" / "buffer.py").exists()


def test_without_mypy_the_tool_reports_it() -> None:
    bare = [sys.executable, "-I", "-S", "tools/compiled.py", "nowhere"]
    done = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "mypyc is not installed\n")


@source_only
def test_the_source_distribution_has_what_compiling_needs(tmp_path: Path) -> None:
    made, _ = build(tmp_path, target="sdist")
    with tarfile.open(made) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "hatch_build.py", "tools/compiled.py", "pyproject.toml", "src/afflux/core/buffer.py"} <= names


def test_every_command_of_the_page_is_tried() -> None:
    """What the tests of the documentation do not run, because it installs or measures, is tried in this file."""
    tried = {
        'AFFLUX_MYPYC=1 pip install -v ".[cli]"': test_pip_builds_as_the_page_states,
        "AFFLUX_MYPYC=0 pip install --force-reinstall --no-deps .": test_nought_is_no,
        "make bench-compiled": test_the_gain_is_measured_as_the_page_states,
    }
    assert re.findall(r"^```sh\n(.*)\n```$", PAGE, re.MULTILINE) == list(tried)


def test_the_gain_is_measured_as_the_page_states(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measuring = import_module("benchmarks.compiled")
    monkeypatch.setattr(measuring, "SECONDS", 1e-9)
    monkeypatch.setattr(sys, "argv", ["compiled", "--once"])
    measuring.main()
    told = json.loads(capsys.readouterr().out)
    assert all(nanoseconds > 0 for nanoseconds in told.values())
    assert re.findall(r"^\| (.*?) \| [\d,]+ \|", PAGE, re.MULTILINE) == list(told)


def test_what_stays_interpreted_exists_and_has_a_reason() -> None:
    for pattern, reason in tool().INTERPRETED.items():
        assert list((ROOT / "src" / "afflux").rglob(f"{pattern}.py")), pattern
        assert reason


def test_the_classes_of_payloads_are_opened_in_the_copy(tmp_path: Path) -> None:
    """What applications derive from them, and put into them, is tested in core/test_payload_classes.py."""
    shutil.copytree(ROOT / "src" / "afflux", tmp_path / "afflux", ignore=shutil.ignore_patterns("__pycache__"))
    tool().open_classes(tmp_path, tmp_path)
    for name in tool().OPEN:
        text = (tmp_path / "afflux" / f"{name}.py").read_text(encoding="utf-8")
        classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
        declared = "mypyc_attr(allow_interpreted_subclasses=True)"
        assert [[ast.unparse(one) for one in node.decorator_list] for node in classes] == [[declared]] * len(classes)
        assert not re.findall(r"data: bytes", text)
        assert tool().reason_of(Path("afflux", f"{name}.py")) is None


def test_a_new_package_is_found_and_its_declarations_are_not_compiled(tmp_path: Path) -> None:
    package = tmp_path / "afflux" / "protocols" / "new" / "inner"
    package.mkdir(parents=True)
    for name in ("__init__", "engine", "frames", "_codecs"):
        for folder in (package, package.parent):
            (folder / f"{name}.py").touch()
    found = {Path(path).relative_to("afflux/protocols/new").as_posix() for path in tool().compiled(tmp_path)}
    assert found == {"engine.py", "_codecs.py", "inner/engine.py", "inner/_codecs.py"}


def test_refusals_of_mypyc_differ_from_failures_of_the_compiler() -> None:
    told = "afflux/protocols/new/engine.py:12: error: no\nafflux/core/ids.py:3: note: see\ngcc: error: none\n"
    assert tool().REFUSED.findall(told) == [("afflux/protocols/new/engine.py", "no")]


def modules() -> list[str]:
    """The modules that are compiled, without those that only the build writes."""
    return [path.removesuffix(".py").replace("/", ".") for path in tool().compiled(ROOT / "src")]


def declaring() -> list[str]:
    """The modules that declare frames."""
    found = (ROOT / "src" / "afflux" / "protocols").rglob(tool().DECLARING)
    return [".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in found]


@source_only
def test_in_the_tree_the_source_is_in_use() -> None:
    for name in modules():
        assert Path(str(import_module(name).__file__)).is_relative_to(ROOT / "src")
    assert frames.PayloadFrame.__mro__[1].__module__ == frames.__name__


@compiled_only
def test_every_module_is_the_compiled_one() -> None:
    assert "afflux.core.buffer" in modules()
    for name in modules():
        assert str(import_module(name).__file__).endswith(EXTENSION), name


@compiled_only
def test_the_codecs_are_the_written_ones() -> None:
    """Those of every protocol that declares frames."""
    assert frames.__name__ in declaring()
    for name in declaring():
        for frame in vars(import_module(name)).values():
            if isinstance(frame, type) and issubclass(frame, Frame) and "__source__" in vars(frame):
                codec = frame.__mro__[1]
                assert codec.__module__ == f"{name.rpartition('.')[0]}._codecs", frame
                assert str(sys.modules[codec.__module__].__file__).endswith(EXTENSION)


@compiled_only
def test_a_compiled_class_differs_as_the_page_states() -> None:
    for kind in (afflux.Payload, ExtendedPayload):
        assert get_type_hints(kind) == {}
        assert not hasattr(kind, "__slots__")
        assert not kind.__doc__
    assert str(inspect.signature(afflux.Payload)) == "(data=b'', metadata=None)"
    payload = afflux.Payload(b"d")
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del payload.data
    for protocol in (0, 1):
        with pytest.raises(TypeError, match="cannot pickle 'Payload' object"):
            pickle.dumps(payload, protocol)
    with pytest.raises(TypeError, match="str or None object expected; got int"):
        ExtendedPayload(data_mime=3)  # type: ignore[arg-type]  # the mistake under test


@compiled_only
def test_a_compiled_wheel_is_tagged_for_its_interpreter_and_platform() -> None:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    system, machine = sysconfig.get_platform().replace(".", "_").split("-", 1)
    site = Path(buffer.__file__).parents[2]
    here = site == ROOT / "build" / "compiled" / "site"  # made by tools/compiled.sh; otherwise by cibuildwheel
    repaired = system == "linux" and (find_spec("auditwheel") or not here)
    many = r"manylinux(?:\d+|_\d+_\d+)" if repaired else re.escape(system)
    tag = rf"{python}-{python}-{many}_{machine}"
    if here:
        (wheel,) = site.parent.glob("*.whl")
        assert re.fullmatch(rf"afflux-{afflux.__version__}-{tag}(?:\.{many}_{machine})*\.whl", wheel.name)
    (found,) = (one for one in metadata.distributions(path=[str(site)]) if one.name == "afflux")
    told = found.read_text("WHEEL") or ""
    assert re.search(rf"^Tag: {tag}$", told, re.MULTILINE)
    assert "Root-Is-Purelib: false" in told.splitlines()


def test_a_release_is_compiled_for_every_python_that_is_supported_and_tested() -> None:
    """By cibuildwheel, which refuses a pure wheel: where compiling fails there is no wheel of that name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    release = project["tool"]["cibuildwheel"]
    supported = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["project"]["classifiers"]))
    assert release["build"] == [f"cp3{minor}-manylinux_*" for minor in supported]
    assert release["environment"] == {"AFFLUX_MYPYC": "1"}
    assert release["test-environment"] == {"AFFLUX_EXPECT_COMPILED": "1"}
    for folder in re.findall(r"\{project\}/(\S+)", release["test-command"]):
        assert (ROOT / folder).exists(), folder


ONLY = """
import sys
from importlib.machinery import PathFinder

class Installed(PathFinder):
    "Finds what cibuildwheel installs, and no other packages of this environment."
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else super().find_spec(name, path, target)

absent = set(sys.argv.pop(1).split())
sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def required(names: Iterable[str], found: set[str]) -> set[str]:
    """The distributions that ``names`` (requirements) need, with their own; added to ``found``."""
    for name in names:
        wanted = re.match(r"[\w.-]+", name)
        assert wanted is not None
        one = re.sub(r"[-_.]+", "-", wanted[0]).lower()
        if "extra ==" not in name and one not in found:
            with contextlib.suppress(metadata.PackageNotFoundError):  # of another platform
                found |= {one}
                required(metadata.requires(one) or (), found)
    return found


@source_only
def test_a_release_has_what_its_tests_import(tmp_path: Path) -> None:
    """They are collected, and those of all wires run, where only the packages exist that cibuildwheel installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    release, extras = project["tool"]["cibuildwheel"], project["project"]["optional-dependencies"]
    wanted = [*release["test-requires"], *(one for extra in release.get("test-extras", ()) for one in extras[extra])]
    there = {"afflux", "pip"} | required(wanted, set())
    absent = {
        module
        for module, names in metadata.packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", name).lower() for name in names} & there
    }
    folders = re.findall(r"\{project\}/(\S+)", release["test-command"])
    plugins = ("-p", "pytest_asyncio.plugin", "-p", "pytest_timeout", "-p", "_hypothesis_pytestplugin")
    for asked in (["--collect-only", *folders], ["tests/protocols/test_shared.py", "-k", "wss"]):
        words = [sys.executable, "-c", ONLY, " ".join(absent), "-qq", "-p", "no:cacheprovider", *plugins, *asked]
        env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.parametrize("page", ["install.md", "compiled.md"])
def test_the_pages_state_which_wheels_a_release_has(page: str) -> None:
    text = " ".join({"install.md": INSTALL, "compiled.md": PAGE}[page].split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    minors = [int(name.removeprefix("cp3").partition("-")[0]) for name in project["build"]]
    assert f"CPython 3.{minors[0]} to 3.{minors[-1]}" in text and minors == [*range(minors[0], minors[-1] + 1)]
    (image,) = {value for name, value in project["linux"].items() if name.startswith("manylinux-")}
    wheels = f"{image.replace('_', ' ', 1).replace('_', '.')}, {' and '.join(project['linux']['archs'])}"
    assert f"({wheels})" in text


def test_the_page_of_installing_states_what_each_way_makes() -> None:
    """Each row of its table has a test: what the page promises of a build is what the build does."""
    rows = re.findall(
        r"^\| (.*?) \| ((?:compiled|pure Python).*?) \|$", INSTALL.partition("## Compiled or pure")[2], re.M
    )
    assert [made.partition(",")[0] for _, made in rows] == ["compiled", *["pure Python"] * 3]
    (_, source) = rows[2]
    assert source.endswith("`AFFLUX_MYPYC=1`")


@source_only
def test_an_editable_installation_stays_pure(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    told = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(told):
        patch.setenv("AFFLUX_MYPYC", "1")
        patch.setenv("CC", "no-such-compiler")
        (made,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["editable"])
    assert is_pure(Path(made), editable=True)
    assert told.getvalue() == "afflux: an editable installation stays pure Python, so that its source can be edited\n"
