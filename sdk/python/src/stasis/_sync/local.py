# Generated from `_async/local.py` by `scripts/generate_models.py`; do not edit.
"""The local transport: the binary of this host instead of a service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .. import _process as process
from .. import _sync_io as io
from .._model import ModelType


class Local:
    """Runs commands of the `stasis` binary on this host.

    `binary` is the program [default: STASIS_BIN, else `stasis` in PATH], `store` the store [default: as the binary has it],
    `environment` are variables that commands have besides those of this process, such as the keys of an S3 store.
    """

    def __init__(
        self,
        *,
        binary: str | os.PathLike[str] | None = None,
        store: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._setup = process.setup(binary, store, io.environment(), environment)

    def __repr__(self) -> str:
        # Neither the environment nor the address: both may have secrets in them.
        return f"{type(self).__name__}(binary={self._setup.binary!r})"

    def run(
        self,
        *command: str,
        directory: str | os.PathLike[str] | None = None,
        given: bytes | None = None,
        allowed: frozenset[int] = frozenset(),
    ) -> dict[str, Any]:
        """Runs one command and returns what it prints with `--json`; raises what it fails with.

        `directory` is where it runs, `given` its standard input. A code in `allowed` is no failure where there is a result.
        """
        where = None if directory is None else os.fspath(directory)
        ended = io.run(self._setup.words(command), self._setup.environment, where, given)
        return process.result(command, ended, allowed)

    def call(
        self,
        cls: type[ModelType],
        *command: str,
        directory: str | os.PathLike[str] | None = None,
        given: bytes | None = None,
        allowed: frozenset[int] = frozenset(),
    ) -> ModelType:
        """The same, read as `cls`."""
        document = self.run(*command, directory=directory, given=given, allowed=allowed)
        return cls.from_json(document)

    def version(self) -> str:
        """What the binary is: its version and its build."""
        words = [self._setup.binary, "--version"]
        ended = io.run(words, self._setup.environment, None, None)
        if ended.code != 0:
            raise process.failure(["--version"], ended, None)
        return ended.output.decode(errors="replace").splitlines()[0]
