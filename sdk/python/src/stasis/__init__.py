"""Stasis: save, restore, rewind and fork what AI agents' computers hold.

`Client` speaks to `stasis serve`; `Local` runs the binary of this host. `ProfileRun`, `Directory`, `Container` and
`Session` work on this host through `Local`. Each has an asynchronous twin whose name begins with `Async`.
"""

from __future__ import annotations

from . import errors, models
from ._async._operation import AsyncOperation
from ._async.client import AsyncClient
from ._async.container import AsyncContainer
from ._async.directory import AsyncAttempt, AsyncDirectory, AsyncRace
from ._async.local import AsyncLocal
from ._async.profile import AsyncProfile, AsyncProfileRun
from ._async.session import AsyncSession
from ._core import Retries
from ._profile import Options, RunResult, Start
from ._sync._operation import Operation
from ._sync.client import Client
from ._sync.container import Container
from ._sync.directory import Attempt, Directory, Race
from ._sync.local import Local
from ._sync.profile import Profile, ProfileRun
from ._sync.session import Session
from ._version import __version__
from .errors import StasisError

__all__ = [
    "AsyncAttempt",
    "AsyncClient",
    "AsyncContainer",
    "AsyncDirectory",
    "AsyncLocal",
    "AsyncOperation",
    "AsyncProfile",
    "AsyncProfileRun",
    "AsyncRace",
    "AsyncSession",
    "Attempt",
    "Client",
    "Container",
    "Directory",
    "Local",
    "Operation",
    "Options",
    "Profile",
    "ProfileRun",
    "Race",
    "Retries",
    "RunResult",
    "Session",
    "Start",
    "StasisError",
    "__version__",
    "errors",
    "models",
]
