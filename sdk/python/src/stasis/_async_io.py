"""What the asynchronous half does with time and processes. `_sync_io` has the same names."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from ._process import Ended

ResultType = TypeVar("ResultType")

Lock = asyncio.Lock

# A line of what a program says may be a whole result.
LIMIT = 64 * 1024 * 1024


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def run(
    words: Sequence[str], environment: Mapping[str, str], directory: str | None, given: bytes | None
) -> Ended:
    """Runs a program to its end."""
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        cwd=directory,
    )
    try:
        output, errors = await process.communicate(given)
    except asyncio.CancelledError:
        # Nobody waits for it any more: it gives back what it holds.
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        raise
    return Ended(process.returncode or 0, output, errors)


class Child:
    """A program that is spoken to while it runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = bytearray()
        self._reader = asyncio.create_task(self._read_errors())

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(65536):
            self._errors += piece

    async def errors_with(self, wanted: bytes, seconds: float) -> bytes:
        """What it said on standard error, once that has something in it, or the time is over."""
        until = asyncio.get_running_loop().time() + seconds
        while wanted not in self._errors and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.02)
        return bytes(self._errors)

    @classmethod
    async def start(cls, words: Sequence[str], environment: Mapping[str, str]) -> Child:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environment),
            limit=LIMIT,
            # Ctrl-C is for us: we end it in our own time.
            start_new_session=True,
        )
        return cls(process)

    async def line(self) -> bytes:
        """The next line; nothing at the end."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    async def rest(self) -> bytes:
        """Everything else that it says."""
        assert self._process.stdout is not None
        return await self._process.stdout.read()

    def close_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    async def ended(self, output: bytes) -> Ended:
        code = await self._process.wait()
        await self._reader
        return Ended(code, output, bytes(self._errors))


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
