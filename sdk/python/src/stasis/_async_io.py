"""What the asynchronous half does with time and processes. `_sync_io` has the same names.

Processes are those of `subprocess`, each waited for by a thread: those of `asyncio` need the loop of the main thread with some
versions of Python, and a task that is cancelled while one starts hangs with others.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from . import _sync_io
from ._process import Ended

ResultType = TypeVar("ResultType")

Lock = asyncio.Lock


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def in_thread(work: Callable[[], ResultType]) -> ResultType:
    """Does it in a thread of its own: one of a pool would wait for those that wait for long."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ResultType] = loop.create_future()

    def told(result: ResultType | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def worked() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as caught:  # noqa: BLE001 - whoever waits gets it
            error = caught
        # A loop that is closed waits for nothing any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(told, result, error)

    threading.Thread(target=worked, daemon=True).start()
    return await future


async def run(
    words: Sequence[str], environment: Mapping[str, str], directory: str | None, given: bytes | None
) -> Ended:
    """Runs a program to its end."""
    process = _sync_io.begin(words, environment, directory, given is not None)
    try:
        return await in_thread(lambda: _sync_io.finish(process, given))
    except asyncio.CancelledError:
        # Nobody waits for it any more: it gives back what it holds.
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        raise


class Child:
    """A program that is spoken to while it runs."""

    def __init__(self, child: _sync_io.Child) -> None:
        self._child = child

    @classmethod
    async def start(cls, words: Sequence[str], environment: Mapping[str, str]) -> Child:
        return cls(_sync_io.Child.start(words, environment))

    async def line(self) -> bytes:
        """The next line; nothing at the end."""
        return await in_thread(self._child.line)

    async def rest(self) -> bytes:
        """Everything else that it says."""
        return await in_thread(self._child.rest)

    async def errors_with(self, wanted: bytes, seconds: float) -> bytes:
        """What it said on standard error, once that has something in it, or the time is over."""
        return await in_thread(lambda: self._child.errors_with(wanted, seconds))

    def close_input(self) -> None:
        self._child.close_input()

    def send_signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    async def ended(self, output: bytes) -> Ended:
        return await in_thread(lambda: self._child.ended(output))


class Background:
    """Work beside the caller's."""

    def __init__(self, task: asyncio.Task[bytes]) -> None:
        self._task = task

    @classmethod
    def start(cls, work: Callable[[], Awaitable[bytes]]) -> Background:
        async def awaited() -> bytes:
            return await work()

        return cls(asyncio.create_task(awaited()))

    async def result(self) -> bytes:
        # Whoever is cancelled while waiting does not end the work.
        return await asyncio.shield(self._task)


async def gather(work: Sequence[Callable[[], Awaitable[ResultType]]]) -> list[ResultType | BaseException]:
    """Does all of it at once; a failure takes the place of its result."""
    return list(await asyncio.gather(*[one() for one in work], return_exceptions=True))


def private_directory() -> tempfile.TemporaryDirectory[str]:
    """A directory that only this user can look into."""
    return tempfile.TemporaryDirectory(prefix="stasis-")


def environment() -> dict[str, str]:
    return dict(os.environ)
