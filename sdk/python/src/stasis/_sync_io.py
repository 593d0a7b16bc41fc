"""What the synchronous half does with time and processes. `_async_io` has the same names."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ._process import Ended

ResultType = TypeVar("ResultType")

Lock = threading.Lock


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def begin(
    words: Sequence[str], environment: Mapping[str, str], directory: str | None, is_given: bool
) -> subprocess.Popen[bytes]:
    """Starts a program, which is given something on its standard input or nothing."""
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE if is_given else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
        cwd=directory,
    )


def finish(process: subprocess.Popen[bytes], given: bytes | None) -> Ended:
    """Waits for its end."""
    with process:
        try:
            output, errors = process.communicate(given)
        except BaseException:
            # Nobody waits for it any more: it gives back what it holds.
            process.send_signal(signal.SIGTERM)
            raise
    return Ended(process.returncode, output, errors)


def run(words: Sequence[str], environment: Mapping[str, str], directory: str | None, given: bytes | None) -> Ended:
    """Runs a program to its end."""
    return finish(begin(words, environment, directory, given is not None), given)


class Child:
    """A program that is spoken to while it runs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._errors = bytearray()
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    @classmethod
    def start(cls, words: Sequence[str], environment: Mapping[str, str]) -> Child:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            # Ctrl-C is for us: we end it in our own time.
            start_new_session=True,
        )
        return cls(process)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while piece := os.read(self._process.stderr.fileno(), 65536):
            self._errors += piece

    def errors_with(self, wanted: bytes, seconds: float) -> bytes:
        """What it said on standard error, once that has something in it, or the time is over."""
        until = time.monotonic() + seconds
        while wanted not in self._errors and time.monotonic() < until:
            time.sleep(0.02)
        return bytes(self._errors)

    def line(self) -> bytes:
        """The next line; nothing at the end."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def rest(self) -> bytes:
        """Everything else that it says."""
        assert self._process.stdout is not None
        return self._process.stdout.read()

    def close_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def ended(self, output: bytes) -> Ended:
        code = self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        return Ended(code, output, bytes(self._errors))


class Background:
    """Work beside the caller's."""

    def __init__(self, future: Future[bytes]) -> None:
        self._future = future

    @classmethod
    def start(cls, work: Callable[[], bytes]) -> Background:
        future: Future[bytes] = Future()

        def worked() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
                future.set_exception(error)

        threading.Thread(target=worked, daemon=True).start()
        return cls(future)

    def result(self) -> bytes:
        return self._future.result()


def gather(work: Sequence[Callable[[], ResultType]]) -> list[ResultType | BaseException]:
    """Does all of it at once; a failure takes the place of its result."""
    with ThreadPoolExecutor(max_workers=max(1, len(work))) as pool:
        futures = [pool.submit(one) for one in work]
    return [future.exception() or future.result() for future in futures]


def private_directory() -> tempfile.TemporaryDirectory[str]:
    """A directory that only this user can look into."""
    return tempfile.TemporaryDirectory(prefix="stasis-")


def environment() -> dict[str, str]:
    return dict(os.environ)
