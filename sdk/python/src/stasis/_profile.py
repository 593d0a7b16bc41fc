"""The rules of a run on a profile, without a process: its command line, and what its end means."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ._models import ProfileRan
from ._process import OF_COMMAND
from .errors import CODE_OF_EXIT, Failure, StasisError, error_of

# Says that the profile is there, and waits until we close its input: also where this process dies.
READY = "stasis-sdk-ready"
WAITER = (
    f'printf "%s\\n" {READY} "$STASIS_PROFILE_DIR" "$STASIS_PROFILE_LOAD" "${{STASIS_PROFILE_LOAD_REASON:-}}"; '
    "read -r _; exit 0"
)

# What the log says when a profile could not be loaded as it should have been.
FALLBACKS = ("fresh_fallback", "predecessor")


@dataclass(frozen=True)
class Start:
    """What a run began with."""

    outcome: str
    """One of: success, upgraded, predecessor (an older snapshot, because the active one is damaged), no_snapshot (there never
    was one), fresh_fallback (there is one, and it was not loaded)."""
    reason: str | None = None
    """Why the active snapshot was not loaded, in a word; not known before the end with binaries that do not say it earlier."""
    detail: str | None = None
    """The same in a sentence."""

    @property
    def is_fresh(self) -> bool:
        """Whether the directory began empty: nobody is logged in."""
        return self.outcome not in ("success", "upgraded", "predecessor")

    @property
    def is_restored(self) -> bool:
        """Whether the directory began as a snapshot."""
        return not self.is_fresh


@dataclass(frozen=True)
class RunResult:
    """The terminal status of a run."""

    start: Start
    """What it began with."""
    save_outcome: str
    """What became of the save: captured, deduplicated (nothing changed), diverged, damaged, shrunk, too_large, …"""
    is_saved: bool
    """Whether the next run begins with what this one left."""
    snapshot_failed: bool
    """Whether a snapshot was wanted and there is none: the one before stays."""
    lock_lost: bool
    """Whether the lease was lost: the browser was stopped, and nothing was saved."""
    profile_too_large: bool
    """Whether the profile is larger than its policy allows: prune it."""
    diverged: bool
    """Whether the snapshot is stored, but another one stays the active one."""
    save_error: str | None
    """Why nothing was saved."""
    sha256: str | None
    """The snapshot that was stored."""
    warnings: list[str]
    """What went less well than it should have, by its code."""
    ran: ProfileRan
    """Everything that the binary says of it."""
    exit_code: int
    """The code of `stasis profile run`."""

    def failure(self) -> StasisError | None:
        """What kept the run from being saved and published, as an exception; `None` if nothing did."""
        if self.is_saved or self.save_outcome == "discarded":
            return None
        subject = str(self.ran.subject)
        said = f"the run of {subject} was not saved ({self.save_outcome})"
        if self.save_error:
            said += f": {self.save_error}"
        kept = f"what the browser left is in {self.ran.load.dir}: save it with `stasis profile save --dir`"
        usual = (CODE_OF_EXIT.get(self.exit_code - OF_COMMAND, "failed"), kept)
        code, hint = HINTS.get(self.save_outcome, usual)
        fields = {"result": self.ran.raw}
        return error_of(Failure(message=said, code=code, hint=hint, exit_code=self.exit_code, fields=fields))

    def raise_for_failure(self) -> None:
        """Raises what kept the run from being saved and published."""
        failure = self.failure()
        if failure is not None:
            raise failure


# The kind of failure that an outcome of a save is, and what helps.
HINTS: Mapping[str, tuple[str, str | None]] = {
    "lock_lost": ("lock_lost", None),
    "diverged": ("diverged", "the snapshot is stored: `stasis profile rollback` makes it the active one"),
    "damaged": ("corrupt", "the snapshot before stays the active one"),
    "upgrade_incomplete": ("corrupt", "the snapshot before stays the active one"),
    "shrunk": ("limit", "if that is meant, run with accept_shrink=True"),
    "too_large": ("limit", "remove what the profile need not keep, or raise the limit of the tenant's policy"),
}


def result_of(ran: ProfileRan, start: Start, exit_code: int) -> RunResult:
    """The terminal status, from what the binary printed."""
    began = Start(ran.load.outcome, ran.load.reason or start.reason, ran.load.detail or start.detail)
    return RunResult(
        start=began,
        save_outcome=ran.save_outcome,
        is_saved=ran.save_outcome in ("captured", "deduplicated"),
        snapshot_failed=ran.snapshot_failed,
        lock_lost=ran.lock_lost,
        profile_too_large=ran.save_outcome == "too_large",
        diverged=ran.diverged,
        save_error=ran.save_error,
        sha256=ran.save.sha256 if ran.save else None,
        warnings=[one.code for one in [*ran.load.warnings, *ran.warnings, *(ran.save.warnings if ran.save else [])]],
        ran=ran,
        exit_code=exit_code,
    )


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a profile is loaded, held and saved. What is `None` is decided by the binary: variables, configuration, policy.

    Times are in seconds.
    """

    dir: str | os.PathLike[str] | None = None
    """The user data directory [default: one of the profile's own]."""
    browser: str | None = None
    """The browser that is asked for its major version [default: the one that is installed]."""
    chrome_major: int | None = None
    """The major version, where no browser is to be asked."""
    wait: float | None = None
    """How long to wait for another run that holds the profile."""
    save: bool = True
    """Without it the run has a private copy, takes no lease, and what it does is thrown away."""
    sha: str | None = None
    """Another snapshot than the active one; only without a save."""
    on_failure: str | None = None
    """Where a snapshot cannot be loaded: `fresh` goes on with nothing, `refuse` raises."""
    every: float | None = None
    """Save in between too, while the browser runs: needs `allow_hot` in the tenant's policy."""
    linger: float = 10.0
    """How long a browser may go on after the block, before it is closed."""
    max_time: float | None = None
    """How long the run may take before the browser is closed and saved."""
    close_timeout: float | None = None
    """How long closing the browser may take before it is killed."""
    run_id: str | None = None
    """What this run is called."""
    host: str | None = None
    """What this host is called."""
    host_run_id: str | None = None
    """What the host calls this run."""
    region: str | None = None
    """The region that this host is in."""
    egress_geo: str | None = None
    """Where the world sees this host: `US/NY`."""
    notes: str | None = None
    """A note that is stored with the snapshot."""
    policy: str | None = None
    """`cold-only` refuses snapshots that were taken of a running browser."""
    upgrade: bool = True
    """Whether the snapshot of an older Chrome is carried to this one."""
    from_major: int | None = None
    """Carry the snapshot of this older Chrome, also where there is one of this Chrome."""
    include_caches: bool = False
    """Save what the browser makes again by itself, too."""
    accept_shrink: bool = False
    """Publish it although it has suspiciously little of what the snapshot before has."""


class OptionNames(TypedDict, total=False):
    """The fields of `Options`, as keyword arguments; a test says that they are the same."""

    dir: str | os.PathLike[str] | None
    browser: str | None
    chrome_major: int | None
    wait: float | None
    save: bool
    sha: str | None
    on_failure: str | None
    every: float | None
    linger: float
    max_time: float | None
    close_timeout: float | None
    run_id: str | None
    host: str | None
    host_run_id: str | None
    region: str | None
    egress_geo: str | None
    notes: str | None
    policy: str | None
    upgrade: bool
    from_major: int | None
    include_caches: bool
    accept_shrink: bool


def seconds(time: float) -> str:
    """A time as the binary takes it."""
    return f"{max(1, math.ceil(time * 1000))}ms" if time < 1 else f"{math.ceil(time)}s"


def command(subject: str, options: Options) -> list[str]:
    """The command that holds a profile for as long as its input is open."""
    words = ["profile", "run", subject]
    named = {
        "--dir": None if options.dir is None else os.fspath(options.dir),
        "--browser": options.browser,
        "--chrome-major": options.chrome_major,
        "--sha": options.sha,
        "--on-failure": options.on_failure,
        "--run-id": options.run_id,
        "--host": options.host,
        "--host-run-id": options.host_run_id,
        "--region": options.region,
        "--egress-geo": options.egress_geo,
        "--notes": options.notes,
        "--policy": options.policy,
        "--from-major": options.from_major,
    }
    times = {
        "--wait": options.wait,
        "--every": options.every,
        "--linger": options.linger,
        "--max-time": options.max_time,
        "--patience": options.close_timeout,
    }
    flags = {
        "--no-save": not options.save,
        "--no-upgrade": not options.upgrade,
        "--include-caches": options.include_caches,
        "--accept-shrink": options.accept_shrink,
    }
    words += [f"{name}={value}" for name, value in named.items() if value is not None]
    words += [f"{name}={seconds(value)}" for name, value in times.items() if value is not None]
    words += [name for name, is_set in flags.items() if is_set]
    # The command names the directory, so that nobody warns that it does not.
    return [*words, "--", "/bin/sh", "-c", WAITER, "sh", "{dir}"]


@dataclass(frozen=True)
class Ready:
    """What the waiter said."""

    dir: Path
    start: Start


def ready(lines: Sequence[bytes]) -> Ready:
    """Reads what the waiter said after its first line."""
    place, outcome, reason = (os.fsdecode(line).removesuffix("\n") for line in lines)
    return Ready(Path(place), Start(outcome, reason or None))


def logged_detail(log: bytes) -> str | None:
    """Why a profile was not loaded, as the log has it, which is written as one JSON object a line."""
    for line in reversed(log.splitlines()):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("fields"), dict):
            detail = entry["fields"].get("detail")
            if isinstance(detail, str):
                return detail
    return None
