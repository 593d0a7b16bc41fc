"""The rules of the local transport, without a process: how a command is written, and what its end means."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import CODE_OF_EXIT, CODE_OF_KIND, BinaryNotFound, Failure, StasisError, error_of

# Done, and something that could be expected is missing: the result names it.
INCOMPLETE = 13
# Started fresh instead of restored: the result says why.
FRESH = 12
# What a command adds to our code where the code may also be that of the command that it ran.
OF_COMMAND = 100


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    output: bytes
    errors: bytes


@dataclass(frozen=True)
class Setup:
    """Which binary, which store, and how it is called."""

    binary: str
    store: str | None
    environment: Mapping[str, str]

    def words(self, command: Sequence[str]) -> list[str]:
        """The whole command line. Options come first: what is behind `--` belongs to another program."""
        store = ["--store", self.store] if self.store is not None else []
        return [self.binary, "--json", "--quiet", *store, *command]


def setup(
    binary: str | os.PathLike[str] | None,
    store: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
    more: Mapping[str, str] | None,
) -> Setup:
    """How commands are run: the binary that is named, else that of STASIS_BIN, else the one in PATH."""
    named = os.fspath(binary) if binary is not None else environment.get("STASIS_BIN") or "stasis"
    found = shutil.which(named, path=environment.get("PATH"))
    if found is None:
        said = f"`{named}` is not there, or is no program"
        raise BinaryNotFound(Failure(message=said, code="binary_not_found"))
    where = None if store is None else os.fspath(store)
    return Setup(found, where, {**environment, **(more or {})})


def shown(command: Sequence[str]) -> str:
    """A command in a message: its verbs and nothing that could be a secret."""
    verbs: list[str] = []
    for word in command:
        if word.startswith("-") or not word.replace("-", "").isalpha() or len(verbs) == 3:
            break
        verbs.append(word)
    return " ".join(["stasis", *verbs])


def result(command: Sequence[str], ended: Ended, allowed: frozenset[int] = frozenset()) -> dict[str, Any]:
    """The document that a command printed, or the error that it ended with.

    A code in `allowed` is no error where there is a result: it says something that the result says, too.
    """
    document = last_document(ended.output)
    is_error = document is not None and str(document.get("schema", "")).startswith("stasis.error/")
    if document is not None and not is_error and ended.code in allowed | {0, FRESH, INCOMPLETE}:
        return document
    raise failure(command, ended, document if is_error else None, document)


def failure(
    command: Sequence[str], ended: Ended, error: Mapping[str, Any] | None, document: Mapping[str, Any] | None = None
) -> StasisError:
    """The error of a command that failed."""
    what = f"`{shown(command)}`"
    said = (error or {}).get("error")
    if not isinstance(said, Mapping):
        reason = ended.errors.decode(errors="replace").strip().splitlines()
        last = reason[-1] if reason else "without a word"
        code = ended.code - OF_COMMAND if OF_COMMAND < ended.code < 127 else ended.code
        word = CODE_OF_EXIT.get(code, "failed")
        message = f"{what} ended with {ended.code}: {last}"
        fields = {"result": document} if document else {}
        return error_of(Failure(message=message, code=word, exit_code=ended.code, fields=fields))
    causes = [str(one) for one in said.get("causes", [])]
    own = ("kind", "exit_code", "message", "causes", "hint")
    hint = said.get("hint")
    return error_of(
        Failure(
            message=f"{what} failed: " + ": ".join([str(said.get("message")), *causes]),
            code=CODE_OF_KIND.get(str(said.get("kind")), "failed"),
            hint=hint if isinstance(hint, str) else None,
            exit_code=ended.code,
            fields={"causes": causes, **{name: value for name, value in said.items() if name not in own}},
        )
    )


def last_document(output: bytes) -> dict[str, Any] | None:
    """The document that a command printed: all that it said, or its last line where another program spoke before."""
    text = output.decode(errors="replace").strip()
    for candidate in (text, text.rsplit("\n", 1)[-1]):
        try:
            document = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(document, dict):
            return document
    return None
