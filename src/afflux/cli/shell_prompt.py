"""Read the lines of ``afflux shell`` from a terminal, with history and completion (``prompt_toolkit``)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from enum import EnumType
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args, get_origin, get_type_hints

import typer

from afflux.cli.shell_lines import CONNECTION, END, HELP, VERBS
from afflux.core.errors import MissingExtra

if TYPE_CHECKING:
    from afflux.cli.shell import Shell

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.output import create_output
except ModuleNotFoundError:
    raise MissingExtra("the shell on a terminal", "shell") from None

__all__ = ["HISTORY_LINES", "Completions", "Lines", "prompt_lines"]

HISTORY_LINES = 1_000
"Lines that the history retains."


async def prompt_lines(shell: Shell, history: Path) -> AsyncIterator[str]:
    """Yield the lines entered until Ctrl-D. Ctrl-C discards the line. The prompt is never written to a redirected
    stdout."""
    session: PromptSession[str] = PromptSession(
        "afflux> ",
        history=Lines(history),
        completer=Completions(shell),
        complete_while_typing=False,
        output=create_output(always_prefer_tty=True),
    )
    while True:
        try:
            yield await session.prompt_async()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


class Lines(History):
    """The history: a file of lines that only the user can read, the last ``HISTORY_LINES`` of it. Without a file that
    can be written, it ends with the shell."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path: Path | None = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            typer.echo(f"afflux: no history: {path}: {error.strerror}", err=True)
            self._path = None

    def load_history_strings(self) -> Iterable[str]:
        """Return the stored lines, the last one first. A file that has grown is cut."""
        if self._path is None:
            return []
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        if len(lines) > 2 * HISTORY_LINES:
            self._path.write_text("".join(f"{line}\n" for line in lines[-HISTORY_LINES:]), encoding="utf-8")
        return reversed(lines[-HISTORY_LINES:])

    def append_string(self, string: str) -> None:
        """Add a line, unless it starts with a space."""
        if not string.startswith(" "):
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Append a line to the file."""
        if self._path is not None:
            with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
                file.write(" ".join(string.splitlines()) + "\n")


class Completions(Completer):
    """Complete commands, options, their values, files behind @, and the routes of a server that lists them."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._options = _options()

    def blocking(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Return nothing: the routes need the connection."""
        return ()

    async def completions(self, document: Document, complete_event: CompleteEvent) -> AsyncGenerator[Completion, None]:
        """Yield the completions of the word before the cursor."""
        *before, word = document.text_before_cursor.split(" ")
        before = [each for each in before if each]
        for text in await self._words(before, word):
            if text.startswith(word) and text != word:
                yield Completion(text, -len(word))

    # The names by which prompt_toolkit calls them.
    get_completions = blocking
    get_completions_async = completions

    async def _words(self, before: list[str], word: str) -> list[str]:
        if not before:
            return [*VERBS, *HELP.names, *END.names]
        if before[-1] in ("-r", "--route"):
            return await self._routes(before)
        if word.startswith("@"):
            return list(_files(word))
        values = self._options.get(before[-1])
        return list(self._options) if values is None else values

    async def _routes(self, before: list[str]) -> list[str]:
        """Return the routes of the line's verb, of patterns the text before the first place."""
        verb = {"fnf": "fire"}.get(before[0], before[0])
        found = [each.route.partition("{")[0] for each in await self._shell.routes() if each.verb == verb]
        return sorted({route for route in found if route})


def _options() -> dict[str, list[str] | None]:
    """Return the options of a line, each with the values that can be completed, or None if it has no value."""
    from afflux.cli.request import request

    found: dict[str, list[str] | None] = {}
    hidden = {*CONNECTION, *VERBS.values()}
    # In an annotation, typer's ``default`` is the first spelling of the option.
    for hint in get_type_hints(request, include_extras=True).values():
        kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        names = [name for note in notes for name in (note.default, *(note.param_decls or ()))]
        declared = [name for name in names if isinstance(name, str) and name.startswith("-")]
        if not hidden.intersection(declared):
            choices: Iterable[object] = next(
                (each for each in (kind, *get_args(kind)) if isinstance(each, EnumType)), ()
            )
            values = None if kind is bool else [str(choice) for choice in choices]
            found |= dict.fromkeys(declared, values)
    return found


def _files(word: str) -> Iterator[str]:
    """Yield the files that an @ and the start of a name may stand for, folders with a slash."""
    folder, _, start = word[1:].rpartition("/")
    base = Path(f"{folder}/" if folder or word.startswith("@/") else ".")
    with contextlib.suppress(OSError):
        for path in sorted(base.iterdir()):
            if path.name.startswith(start):
                lead = f"{folder}/" if folder or word.startswith("@/") else ""
                yield f"@{lead}{path.name}" + ("/" if path.is_dir() else "")
