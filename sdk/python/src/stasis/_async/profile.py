"""Runs on browser profiles: the lease, the load, the renewals and the save, around a block of code."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _async_io as io
from .. import _process as process
from .. import _profile as rules
from .._models import ProfileRan, StateImported
from .._profile import Options, RunResult, Start
from ..errors import Cancelled, Failure, LockLost
from .local import AsyncLocal

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .._profile import OptionNames

LOG = logging.getLogger("stasis")

# How long the log may take to arrive that says why a profile is fresh.
LOG_SECONDS = 2.0


class AsyncProfileRun:
    """One run on a profile: a context manager around the code that drives the browser.

        async with AsyncProfileRun("acme/alice", browser="chromium") as run:
            if run.start.is_fresh:
                ...  # nobody is logged in, and run.start says why
            ...      # a browser with run.dir as its user data directory

    The lease of the profile is taken before the block and renewed while it runs. After the block, also where it raised,
    a browser that still runs on the directory is closed, the profile is saved, and the lease is given back. If this
    process dies, the same happens. With `save=False` the run has a private copy that is thrown away, and takes no lease.

    As in the contract of profiles, a run whose profile could not be saved has ended all the same: `result` says so
    (`snapshot_failed`, `lock_lost`, `profile_too_large`), and a warning is logged. With `strict` it is raised, unless the
    block raised something itself.

    Loads and saves happen on this host, through the binary; the store is that of `local`. The other arguments are those of
    `Options`: `dir`, `browser`, `chrome_major`, `wait`, `save`, `on_failure`, …
    """

    def __init__(
        self,
        subject: str,
        *,
        local: AsyncLocal | None = None,
        on_lock_lost: Callable[[], None] | None = None,
        strict: bool = False,
        **options: Unpack[OptionNames],
    ) -> None:
        self.subject = subject
        self._local = local or AsyncLocal()
        self._options = Options(**options)
        self._on_lock_lost = on_lock_lost
        self._strict = strict
        self._child: io.Child | None = None
        self._output: io.Background | None = None
        self._ready: rules.Ready | None = None
        self._is_leaving = False
        self._early: dict[str, Any] | None = None
        self._result: RunResult | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.subject!r})"

    @property
    def dir(self) -> Path:
        """The user data directory of the browser."""
        return self._begun().dir

    @property
    def start(self) -> Start:
        """What the run began with: a snapshot or nothing, and why."""
        return self._begun().start

    @property
    def lock_lost(self) -> bool:
        """Whether the lease was lost: the browser was stopped, and nothing that is done now will be saved."""
        if self._result is not None:
            return self._result.lock_lost
        return self._early is not None and self._early.get("lock_lost") is True

    @property
    def result(self) -> RunResult:
        """The terminal status, after the block."""
        if self._result is None:
            raise RuntimeError("a run has a result when it has ended")
        return self._result

    def check(self) -> None:
        """Raises `LockLost` where the lease was lost, and `Cancelled` where the run was ended otherwise, such as by its
        `max_time`. Call it before what must not be in vain.
        """
        if self.lock_lost:
            said = f"the run does not hold {self.subject} any more: its lease was lost, and the browser was stopped"
            raise LockLost(Failure(message=said, code="lock_lost"))
        if self._early is not None:
            said = f"the run of {self.subject} has ended: what is done now is not saved"
            raise Cancelled(Failure(message=said, code="cancelled"))

    async def __aenter__(self) -> Self:
        command = rules.command(self.subject, self._options)
        setup = self._local._setup
        words = [setup.binary, "--json", "--log-format=json"]
        words += ["--store", setup.store] if setup.store is not None else []
        child = await io.Child.start([*words, *command], setup.environment)
        try:
            self._ready = await self._first(child, command)
        except BaseException:
            child.close_input()
            child.send_signal(signal.SIGTERM)
            raise
        self._child = child
        self._output = io.Background.start(self._watch)
        return self

    async def _first(self, child: io.Child, command: list[str]) -> rules.Ready:
        """Waits until the profile is there."""
        first = await child.line()
        if first.strip() != rules.READY.encode():
            ended = await child.ended(first + await child.rest())
            # It always raises: a run that never began has no result.
            process.result(command, ended)
            raise process.failure(command, ended, None)
        ready = rules.ready([await child.line(), await child.line(), await child.line()])
        if ready.start.outcome not in rules.FALLBACKS:
            return ready
        detail = rules.logged_detail(await child.errors_with(b'"detail"', LOG_SECONDS))
        return rules.Ready(ready.dir, Start(ready.start.outcome, ready.start.reason, detail))

    async def _watch(self) -> bytes:
        """Takes what the binary says at its end, and notes where that came although nobody asked for it."""
        assert self._child is not None
        output = await self._child.rest()
        if not self._is_leaving:
            self._early = process.last_document(output) or {}
            if self.lock_lost and self._on_lock_lost is not None:
                self._on_lock_lost()
        return output

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._child is not None and self._output is not None
        self._is_leaving = True
        self._child.close_input()
        ended = await self._child.ended(await self._output.result())
        self._result = self._read(ended)
        failure = self._result.failure()
        if failure is None:
            return
        LOG.warning("%s", failure, extra={"stasis_code": failure.code, "stasis_subject": self.subject})
        # Nobody was told that the block worked in vain.
        is_surprise = self._early is not None and self._result.lock_lost and self._on_lock_lost is None
        if error is None and (self._strict or is_surprise):
            raise failure

    def _read(self, ended: process.Ended) -> RunResult:
        command = rules.command(self.subject, self._options)
        # The code may be that of whatever ended the waiter: where there is a result, it says everything.
        document = process.result(command, ended, allowed=frozenset(range(256)))
        return rules.result_of(ProfileRan.from_json(document), self.start, ended.code)

    def _begun(self) -> rules.Ready:
        if self._ready is None:
            raise RuntimeError("a run has a directory inside its block: `async with AsyncProfileRun(…) as run`")
        return self._ready


class AsyncProfile:
    """A profile of a browser: runs on it, and its storage state."""

    def __init__(self, subject: str, *, local: AsyncLocal | None = None) -> None:
        self.subject = subject
        self._local = local or AsyncLocal()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.subject!r})"

    def run(
        self,
        *,
        on_lock_lost: Callable[[], None] | None = None,
        strict: bool = False,
        **options: Unpack[OptionNames],
    ) -> AsyncProfileRun:
        """A run on the profile; the options are those of `Options`."""
        return AsyncProfileRun(self.subject, local=self._local, on_lock_lost=on_lock_lost, strict=strict, **options)

    async def storage_state(self, *, sha: str = "latest") -> dict[str, Any]:
        """Cookies and Local Storage of a snapshot, as Playwright's `storage_state` has them.

        Whoever has it is signed in: keep it in memory.
        """
        with io.private_directory() as place:
            file = os.path.join(place, "state.json")  # noqa: PTH118 - a word of a command
            await self._local.run("profile", "storage-state", "export", f"--sha={sha}", "--", self.subject, file)
            state: dict[str, Any] = json.loads(Path(file).read_bytes())
        return state

    async def import_storage_state(
        self,
        state: Mapping[str, Any] | str | os.PathLike[str],
        *,
        browser: str | None = None,
        browser_flags: tuple[str, ...] = (),
        wait: float | None = None,
    ) -> StateImported:
        """Sets the cookies and Local Storage of a Playwright `storage_state` in the profile, and saves it."""
        content = json.dumps(state).encode() if isinstance(state, Mapping) else Path(state).read_bytes()
        words = [f"--browser={one}" for one in ([browser] if browser else []) + list(browser_flags)]
        if wait is not None:
            words.append(f"--wait={rules.seconds(wait)}")
        return await self._local.call(
            StateImported, "profile", "storage-state", "import", *words, "--", self.subject, "-", given=content
        )
