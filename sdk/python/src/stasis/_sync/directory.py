# Generated from `_async/directory.py` by `scripts/generate_models.py`; do not edit.
"""Directories: snapshots in the store, checkpoints on this host, forks, and going back."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from .. import _sync_io as io
from .._model import ModelType
from .._models import (
    Checkpointed,
    Checkpoints,
    DirDiff,
    ForkRow,
    Forks,
    Initiated,
    ProjectRestored,
    ProjectSaved,
    PromotedFork,
    RestoredWorkspace,
    RevertedPath,
    Rewound,
    Timeline,
    UndoneChange,
    WorkspaceChanges,
)
from ..errors import Failure, IntegrityFailed, NotFound, StasisError
from .local import Local

Parameters = ParamSpec("Parameters")
ResultType = TypeVar("ResultType")

# The directories that a tool is being called in which was decorated with `checkpointed`.
_IN_CALL: ContextVar[frozenset[Directory]] = ContextVar("stasis_in_call", default=frozenset())


@dataclass(frozen=True)
class Attempt(Generic[ResultType]):
    """One fork of a race: where it lies, and what its task came to."""

    name: str
    """What the fork is called."""
    directory: Directory
    """Where it lies."""
    result: ResultType | None
    """What the task returned."""
    error: BaseException | None
    """What the task failed with."""


@dataclass(frozen=True)
class Race(Generic[ResultType]):
    """How a race ended."""

    attempts: list[Attempt[ResultType]]
    """All forks, in the order in which they were made."""
    winner: Attempt[ResultType] | None
    """The one that was promoted."""
    promoted: PromotedFork | None
    """What became of the directory; its `undo` is what takes it back."""
    kept: list[str]
    """The names of the forks that are still there."""


class Directory:
    """A directory of this host. What it is not told, the binary decides as on the command line.

    Checkpoints need a workspace: `checkpoint`, `fork` and what builds on them make the directory one if it is none. Nothing is
    put into it.
    """

    def __init__(self, path: str | os.PathLike[str], *, local: Local | None = None) -> None:
        self.path = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        self._local = local or Local()
        self._calls = io.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    # The store.

    def save(
        self,
        message: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        exclude: Sequence[str] = (),
        allow_empty: bool = False,
        accept_shrink: bool = False,
        force: bool = False,
    ) -> ProjectSaved:
        """Saves the directory to the store; what is in it is not touched.

        Raises `IntegrityFailed` where a database of the snapshot before is gone, empty or overwritten: the snapshot is stored
        then, and `latest` stays what it was. `force` makes it `latest` all the same.
        """
        command = ["save", *_option("--message", message)]
        for key, value in (labels or {}).items():
            command += ["--label", f"{key}={value}"]
        for pattern in exclude:
            command.append(f"--exclude={pattern}")
        command += _flags(allow_empty=allow_empty, accept_shrink=accept_shrink, force=force)
        saved = self._local.call(ProjectSaved, *command, "--", str(self.path), allowed=frozenset({1}))
        if saved.is_latest is False:
            said = f"saved {self.path} as {saved.snapshot_id[:8]}, but databases in it are gone, empty or overwritten"
            hint = "`latest` stays the snapshot before; save(force=True) makes this one `latest`"
            raise IntegrityFailed(Failure(message=said, code="corrupt", hint=hint, fields={"result": saved.raw}))
        return saved

    def log(self, limit: int | None = None) -> Timeline:
        """What happened to the directory: snapshots in the store, checkpoints here, and what can be undone."""
        number = ["--all"] if limit is None else [f"--number={limit}"]
        return self._local.call(Timeline, "log", *number, "--", str(self.path))

    def diff(self, before: str | None = None, after: str | None = None, *, patch: bool = False) -> DirDiff:
        """What differs between two snapshots or checkpoints, or between one and what is there now.

        `before` is the newest one by default, `after` what is there now.
        """
        which = [name for name in (before, after) if name is not None]
        return self._local.call(DirDiff, "diff", *_flags(patch=patch), "--", str(self.path), *which)

    def restore(
        self,
        snapshot: str = "latest",
        *,
        paths: Sequence[str] = (),
        except_paths: Sequence[str] = (),
        keep_git: bool = False,
        dry_run: bool = False,
    ) -> ProjectRestored:
        """Makes the directory what a snapshot in the store is. What is there now is saved first; `undo` takes it back."""
        options = [f"--path={path}" for path in paths] + [f"--except={path}" for path in except_paths]
        options += _flags(keep_git=keep_git, dry_run=dry_run, yes=True)
        return self._local.call(ProjectRestored, "restore", *options, "--", str(self.path), snapshot)

    def restore_to(self, target: str | os.PathLike[str], snapshot: str = "latest") -> Directory:
        """Writes a snapshot or a checkpoint to a new directory."""
        place = Directory(target, local=self._local)
        self._local.run("restore", f"--to={place.path}", "--", str(self.path), snapshot)
        return place

    def undo(self, which: str | None = None, *, dry_run: bool = False) -> UndoneChange:
        """Takes back the last restore, rewind, revert, promotion or undo; `which` is an earlier one, such as `u-4`."""
        earlier = [] if which is None else [which]
        options = _flags(dry_run=dry_run, yes=True)
        try:
            return self._local.call(UndoneChange, "undo", *options, "--", str(self.path), *earlier)
        except NotFound as error:
            # Nothing was ever saved to this store: what there is to be taken back is on this host.
            if "the store does not exist" not in error.message:
                raise
            return self._workspace(UndoneChange, "undo", *options, *(["--", *earlier] if earlier else []))

    # Checkpoints.

    def init(self, *, budget: str | None = None, first_checkpoint: bool = True) -> Initiated:
        """Makes the directory a workspace, with a first checkpoint. One that is a workspace already stays what it is."""
        options = [*_option("--budget", budget), *([] if first_checkpoint else ["--no-checkpoint"])]
        return self._local.call(Initiated, "workspace", "init", *options, "--", str(self.path))

    def checkpoint(self, name: str | None = None, *, automatic: bool = False) -> Checkpointed:
        """Makes a checkpoint of the directory as it is now.

        An automatic one is skipped where nothing changed since the last, and the oldest automatic ones make room for it;
        others stay until they are deleted.
        """
        options = _flags(auto=automatic)
        named = [] if name is None else ["--", name]
        return self._with_workspace(lambda: self._workspace(Checkpointed, "create", *options, *named))

    def checkpoints(self) -> Checkpoints:
        """The checkpoints, the newest first."""
        return self._workspace(Checkpoints, "list")

    def changes(self, since: str | None = None) -> WorkspaceChanges:
        """What differs from the checkpoints, or from one of them."""
        return self._workspace(WorkspaceChanges, "changes", *_option("--since", since))

    def revert(
        self, path: str | os.PathLike[str], checkpoint: str | None = None, *, dry_run: bool = False
    ) -> RevertedPath:
        """Makes one file or directory what it was in a checkpoint [default: the newest that differs]."""
        named = [] if checkpoint is None else [checkpoint]
        return self._workspace(RevertedPath, "revert", *_flags(dry_run=dry_run), "--", os.fspath(path), *named)

    def rewind(
        self, checkpoint: str, *, except_paths: Sequence[str] = (), keep_git: bool = False, dry_run: bool = False
    ) -> RestoredWorkspace:
        """Makes the whole directory what it was in a checkpoint, without what was added since. `undo` takes it back."""
        options = [f"--except={path}" for path in except_paths]
        options += _flags(keep_git=keep_git, dry_run=dry_run, yes=True)
        return self._workspace(RestoredWorkspace, "restore", *options, "--", checkpoint)

    def rewind_prompts(self, prompts: int = 1, *, dry_run: bool = False) -> Rewound:
        """Goes back to before the last prompts of a coding agent whose hooks are installed."""
        options = [f"--prompts={prompts}", *_flags(dry_run=dry_run, yes=True)]
        return self._local.call(Rewound, "rewind", f"--workspace={self.path}", *options, directory=self.path)

    def checkpointed(self, function: Callable[Parameters, ResultType]) -> Callable[Parameters, ResultType]:
        """Decorates a tool of an agent: a checkpoint before each call, and back to it where the call raises.

        Calls of tools that were decorated by the same object follow one another, because going back takes back
        everything that happened in the directory since, whoever did it. A tool that calls another one is one call. The
        exception goes on to the caller.
        """

        @functools.wraps(function)
        def called(*arguments: Parameters.args, **named: Parameters.kwargs) -> ResultType:
            if self in _IN_CALL.get():
                return function(*arguments, **named)
            with self._calls:
                before = self.checkpoint(automatic=True)
                mark = _IN_CALL.set(_IN_CALL.get() | {self})
                try:
                    return function(*arguments, **named)
                except Exception:
                    self.rewind(before.checkpoint)
                    raise
                finally:
                    _IN_CALL.reset(mark)

        return called

    # Forks.

    def fork(self, count: int = 1, *, name: str | None = None, checkpoint: str | None = None) -> list[Directory]:
        """Makes copies beside the directory, each a workspace of its own, of how it is now or of a checkpoint."""
        forked = self._fork(count, name, checkpoint)
        return [directory for _, directory in forked]

    def forks(self) -> list[ForkRow]:
        """The forks of the directory: where they are, what changed in them, what they take."""
        found = self._local.call(Forks, "fork", "list", f"--workspace={self.path}")
        return found.items

    def promote(
        self, fork: str | Directory, *, keep_mine: bool = False, keep_git: bool = False, dry_run: bool = False
    ) -> PromotedFork:
        """Makes the directory what a fork is. `undo` takes it back.

        What changed here since the fork was made is overwritten, unless `keep_mine` leaves it.
        """
        name = self._name_of(fork)
        options = _flags(keep_mine=keep_mine, keep_git=keep_git, dry_run=dry_run, yes=True)
        where = f"--workspace={self.path}"
        return self._local.call(PromotedFork, "fork", "promote", where, *options, "--", name)

    def remove_forks(self, *forks: str | Directory, discard: bool = False) -> None:
        """Removes forks with their checkpoints: all of them or none. Refused if work in one is nowhere else, unless it is discarded."""
        names = [self._name_of(fork) for fork in forks]
        if names:
            options = _flags(discard=discard, yes=True)
            self._local.run("fork", "rm", f"--workspace={self.path}", *options, "--", *names)

    def race(
        self,
        count: int,
        task: Callable[[Directory], ResultType],
        judge: Callable[[Sequence[Attempt[ResultType]]], Attempt[ResultType] | None],
        *,
        name: str = "race",
        keep: bool = False,
    ) -> Race[ResultType]:
        """Forks the directory, does the task in all forks at once, and promotes the one that the judge chooses.

        A task that raises loses: its attempt has the `error`. A judge that returns `None` leaves the directory as it is. The
        forks are removed at the end, with what is in them, unless they are kept; where the judge raises, all of them stay.
        """
        forked = self._fork(count, name, None)
        ends = io.gather([functools.partial(task, directory) for _, directory in forked])
        attempts = [_attempt(fork, directory, end) for (fork, directory), end in zip(forked, ends, strict=True)]
        winner = judge(attempts)
        promoted = None if winner is None else self.promote(winner.name)
        if not keep:
            self.remove_forks(*[one.name for one in attempts], discard=True)
        kept = [one.name for one in attempts] if keep else []
        return Race(attempts, winner, promoted, kept)

    def _fork(self, count: int, name: str | None, checkpoint: str | None) -> list[tuple[str, Directory]]:
        # With a number behind it in any case: `race` twice in a row must not fail because of a name.
        options = [f"--count={count}", *_option("--from", checkpoint)]
        if name is not None:
            options.append(f"--name={self._free_name(name)}")

        def made() -> dict[str, Any]:
            return self._local.run("fork", f"--workspace={self.path}", *options)

        document = self._with_workspace(made)
        places = [Directory(path, local=self._local) for path in document["directories"]]
        return list(zip([str(one) for one in document["names"]], places, strict=True))

    def _free_name(self, name: str) -> str:
        """The name, or with a number behind it if forks are called so already."""
        try:
            taken = {row.name for row in self.forks()}
        except StasisError:
            return name
        number, free = 1, name
        while any(one == free or one.startswith(f"{free}-") for one in taken):
            number += 1
            free = f"{name}{number}"
        return free

    def _name_of(self, fork: str | Directory) -> str:
        if isinstance(fork, str):
            return fork
        for row in self.forks():
            if os.path.realpath(row.directory) == os.path.realpath(fork.path):
                return row.name
        said = f"{fork.path} is no fork of {self.path}"
        raise NotFound(Failure(message=said, code="not_found", hint="`forks()` has those that there are"))

    def _workspace(self, cls: type[ModelType], verb: str, *options: str) -> ModelType:
        where = f"--workspace={self.path}"
        return self._local.call(cls, "workspace", verb, where, *options, directory=self.path)

    def _with_workspace(self, work: Callable[[], ResultType]) -> ResultType:
        """Does it, after making the directory a workspace if it is none."""
        try:
            return work()
        except NotFound as error:
            # A checkpoint that is not there is not found, either: only this one says which workspaces there are.
            if "sessions" not in error.fields:
                raise
            self.init(first_checkpoint=False)
            return work()


def _attempt(name: str, directory: Directory, end: ResultType | BaseException) -> Attempt[ResultType]:
    if isinstance(end, BaseException):
        return Attempt(name, directory, None, end)
    return Attempt(name, directory, end, None)


def _option(name: str, value: str | None) -> list[str]:
    return [] if value is None else [f"{name}={value}"]


def _flags(**flags: bool) -> list[str]:
    return ["--" + name.replace("_", "-") for name, is_set in flags.items() if is_set]
