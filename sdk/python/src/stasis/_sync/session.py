# Generated from `_async/session.py` by `scripts/generate_models.py`; do not edit.
"""Sessions of agents: put to sleep when nobody uses them, woken where they left off."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .._models import (
    SessionCaptured,
    SessionForked,
    SessionRegistered,
    SessionShown,
    SessionSlept,
    SessionWoken,
)
from .local import Local


class Session:
    """A session, `<tenant>/<session>`, as this host sees it."""

    def __init__(self, name: str, *, host: str | None = None, local: Local | None = None) -> None:
        self.name = name
        self._host = [] if host is None else [f"--host={host}"]
        self._local = local or Local()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def register(
        self,
        directory: str | os.PathLike[str],
        *,
        roots: Sequence[str] = (),
        idle_timeout: str | None = None,
        sandbox: str | None = None,
        driver: str | None = None,
        pid: int | None = None,
        container: str | None = None,
        start_command: str | None = None,
        health_command: str | None = None,
        terminate_command: str | None = None,
    ) -> SessionRegistered:
        """Says that the session runs from now on, or tells anew what runs it. `roots` is what of its directory is saved."""
        words = [f"--dir={Path(directory).absolute()}", *[f"--root={root}" for root in roots]]
        words += _sandbox(sandbox, driver, pid, container, start_command, health_command, terminate_command)
        if idle_timeout is not None:
            words.append(f"--idle-timeout={idle_timeout}")
        return self._local.call(SessionRegistered, "session", "register", *self._host, *words, "--", self.name)

    def heartbeat(self) -> SessionRegistered:
        """Says that the session is in use."""
        return self._local.call(SessionRegistered, "session", "heartbeat", *self._host, "--", self.name)

    def save(self, *, accept_shrink: bool = False, freeze: bool = False) -> SessionCaptured:
        """Saves the session; its sandbox goes on."""
        words = [*(["--accept-shrink"] if accept_shrink else []), *(["--freeze"] if freeze else [])]
        return self._local.call(SessionCaptured, "session", "snapshot", *self._host, *words, "--", self.name)

    def sleep(self, *, with_others: bool = False, accept_shrink: bool = False) -> SessionSlept:
        """Saves the session and ends its sandbox.

        Where the sandbox holds other sessions that are awake, it goes on for them (`sandbox_kept_for`), unless
        `with_others` puts them all to sleep.
        """
        words = [*(["--with-others"] if with_others else []), *(["--accept-shrink"] if accept_shrink else [])]
        return self._local.call(
            SessionSlept, "session", "sleep", *self._host, *words, "--", self.name, allowed=frozenset({4})
        )

    def wake(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        take_over: bool = False,
        sandbox: str | None = None,
        driver: str | None = None,
        pid: int | None = None,
        container: str | None = None,
        start_command: str | None = None,
        health_command: str | None = None,
        terminate_command: str | None = None,
    ) -> SessionWoken:
        """Brings the session back where it left off, and starts its sandbox; in another directory, or on another host."""
        words = [] if directory is None else [f"--dir={Path(directory).absolute()}"]
        words += _sandbox(sandbox, driver, pid, container, start_command, health_command, terminate_command)
        if take_over:
            words.append("--take-over")
        return self._local.call(SessionWoken, "session", "wake", *self._host, *words, "--", self.name)

    def fork(self, name: str) -> SessionForked:
        """Begins another session, of the same tenant, with the snapshot of this one."""
        return self._local.call(SessionForked, "session", "fork", *self._host, "--", self.name, name)

    def show(self) -> SessionShown:
        """Everything that is known of the session, and whether its sandbox answers."""
        return self._local.call(SessionShown, "session", "show", *self._host, "--", self.name)

    def delete(self) -> None:
        """Deletes the session with its snapshot; its sandbox and its workspace stay."""
        self._local.run("session", "delete", "--confirm", *self._host, "--", self.name)


def _sandbox(
    sandbox: str | None,
    driver: str | None,
    pid: int | None,
    container: str | None,
    start_command: str | None,
    health_command: str | None,
    terminate_command: str | None,
) -> list[str]:
    named = {
        "--sandbox": sandbox,
        "--driver": driver,
        "--pid": pid,
        "--container": container,
        "--start-cmd": start_command,
        "--health-cmd": health_command,
        "--terminate-cmd": terminate_command,
    }
    return [f"{name}={value}" for name, value in named.items() if value is not None]
