"""Snapshots of a container while an agent of the CUA Agent SDK works in it.

    from cua_agent import ComputerAgent
    from stasis.integrations.cua import SnapshotCallback

    agent = ComputerAgent(model=…, tools=[sandbox], callbacks=[SnapshotCallback("web")])

A snapshot is made by a process of its own: the agent waits only until that has begun, and for `patience` seconds at most. What
fails is kept in `failures` and logged once; the run goes on. A container is saved once at a time: where the snapshot before is
still being made, an action has none (`skipped`), and the end of the run waits.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .. import AsyncContainer, AsyncLocal
from ..errors import Failure, NotFound, RequestTimeout, StasisError
from ..models import ContainerRestored, ContainerSaved

if TYPE_CHECKING:

    class AsyncCallbackHandler:
        """The base class of the framework, which type checkers need not have."""
else:
    try:
        from cua_agent.callbacks.base import AsyncCallbackHandler
    except ImportError:
        # What the package was called before.
        from agent.callbacks.base import AsyncCallbackHandler

LOG = logging.getLogger("stasis")

# At which points of a run there can be snapshots, and what the binary calls them.
TRIGGERS: Mapping[str, str] = {
    "run_start": "run_start",
    "run_end": "run_end",
    "before_action": "before_action",
    "after_action": "after_action",
    "before_function": "before_action",
    "after_function": "after_action",
}
USUAL_TRIGGERS = ("run_start", "run_end")

# Under which names the container stands in the arguments of a run, and in tools.
NAMES = ("container_id", "container_name", "container")

# How much of an action is kept with its snapshot.
CONTEXT_LENGTH = 200

Resolver = Callable[[Mapping[str, Any]], "str | Awaitable[str | None] | None"]


class SnapshotCallback(AsyncCallbackHandler):
    """Makes snapshots of the agent's container at the points of a run that are chosen.

    - `container`: its name or id. Without it, it is found at the start of each run: by `resolver`, which gets the arguments of the
      run; in these arguments (`container_id`, `container_name`, `container`); in `tools`, or those of the run; in the variable
      STASIS_CONTAINER.
    - `triggers`: of `run_start`, `run_end`, `before_action`, `after_action` (of the computer), `before_function` and
      `after_function` [default: STASIS_SNAPSHOT_TRIGGERS, as `run_start,before_action`; else run_start and run_end].
    - `enabled`: whether there are any snapshots [default: yes, unless STASIS_SNAPSHOTS is `off`, `0`, `no` or `false`].
    - `wait`: whether the agent waits until a snapshot is complete, so that it has nothing of the action that follows.
    - `patience`: for how many seconds at most anything here keeps the agent waiting.
    """

    def __init__(
        self,
        container: str | None = None,
        *,
        triggers: Iterable[str] | None = None,
        enabled: bool | None = None,
        tools: Iterable[Any] = (),
        resolver: Resolver | None = None,
        tenant: str | None = None,
        labels: Mapping[str, str] | None = None,
        wait: bool = False,
        patience: float | None = None,
        local: AsyncLocal | None = None,
    ) -> None:
        super().__init__()
        self.triggers = frozenset(_triggers() if triggers is None else triggers)
        unknown = self.triggers - TRIGGERS.keys()
        if unknown:
            raise ValueError(f"no trigger is called {', '.join(sorted(unknown))}: there are {', '.join(TRIGGERS)}")
        self.enabled = _is_enabled() if enabled is None else enabled
        self.failures: list[StasisError] = []
        """What went wrong, the last one at the end."""
        self.snapshots: list[str] = []
        """The snapshots that were begun in this run, by their ids."""
        self.skipped = 0
        """How many snapshots of actions were not made, because the one before was still being made."""
        self._configured = container
        self._tools = list(tools)
        self._resolver = resolver
        self._tenant = tenant
        self._labels = dict(labels or {})
        self._wait = wait
        self._patience = patience if patience is not None else (120.0 if wait else 10.0)
        self._local = local
        self._container: str | None = container
        self._run_id: str | None = None
        self._actions = 0
        self._item: Mapping[str, Any] | None = None
        self._logged: set[str] = set()
        self._tasks: set[asyncio.Future[None]] = set()
        self._saving = asyncio.Lock()

    # What the framework calls.

    async def on_run_start(self, kwargs: dict[str, Any], old_items: list[dict[str, Any]]) -> None:
        """The agent begins to work."""
        self._run_id = str(kwargs.get("run_id") or uuid.uuid4())
        self._actions, self._item, self.snapshots, self.skipped = 0, None, [], 0
        if self.enabled:
            await self._guarded(self._find(kwargs))
        await self._at("run_start", None)

    async def on_run_end(
        self, kwargs: dict[str, Any], old_items: list[dict[str, Any]], new_items: list[dict[str, Any]]
    ) -> None:
        """The agent has ended."""
        self._item = None
        await self._at("run_end", None)

    async def on_computer_call_start(self, item: dict[str, Any]) -> None:
        """The agent is about to act."""
        self._actions += 1
        await self._at("before_action", item)

    async def on_computer_call_end(self, item: dict[str, Any], result: list[dict[str, Any]]) -> None:
        """The agent has acted."""
        await self._at("after_action", item)

    async def on_function_call_start(self, item: dict[str, Any]) -> None:
        """The agent is about to call a function."""
        self._actions += 1
        await self._at("before_function", item)

    async def on_function_call_end(self, item: dict[str, Any], result: list[dict[str, Any]]) -> None:
        """The agent has called a function."""
        await self._at("after_function", item)

    # What the user calls.

    async def create_manual_snapshot(self, description: str = "") -> ContainerSaved:
        """Makes a snapshot now, and waits for it. Raises what it fails with, whatever `enabled` says."""
        return await self._of().save(description=description, run_id=self._run_id, labels=self._labels)

    async def restore_latest_snapshot(self, *, replace: bool = False, name: str | None = None) -> ContainerRestored:
        """Makes a container of the latest snapshot: beside the one of the agent, or instead of it, which is saved first."""
        return await self._of().restore("latest", replace=replace, name=name)

    def get_current_context(self) -> dict[str, Any]:
        """Where the run stands: its id, its container, what the agent does, and which snapshots were begun."""
        return {
            "enabled": self.enabled,
            "run_id": self._run_id,
            "container": self._container,
            "triggers": sorted(self.triggers),
            "actions": self._actions,
            "action": _described(self._item),
            "snapshots": list(self.snapshots),
            "skipped": self.skipped,
            "failures": [failure.code for failure in self.failures],
        }

    # How it is done.

    async def _at(self, point: str, item: Mapping[str, Any] | None) -> None:
        """A point of the run: a snapshot, if it is one of those that are wanted."""
        if item is not None:
            self._item = item
        if not self.enabled or point not in self.triggers or self._container is None:
            return
        # A container is saved once at a time, and one of an action would be of a later one: none is better than a wrong one.
        if self._saving.locked() and item is not None:
            self.skipped += 1
            return
        begun = asyncio.Event()
        await self._guarded(self._snapshot(point, item, begun), None if self._wait else begun)

    async def _guarded(self, work: Awaitable[None], until: asyncio.Event | None = None) -> None:
        """Does it beside the run, which waits for its end, or until it has come to a point, and for so long at most."""
        task = asyncio.ensure_future(self._kept(work))
        # Nobody else would keep it from being collected.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        waited: list[asyncio.Future[Any]] = [task]
        if until is not None:
            waited.append(asyncio.ensure_future(until.wait()))
        done, _ = await asyncio.wait(waited, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
        for one in waited[1:]:
            one.cancel()
        if not done:
            said = f"a snapshot of container {self._container} takes longer than {self._patience:g} s; it goes on"
            self._failed(RequestTimeout(Failure(message=said, code="timed_out")))

    async def _kept(self, work: Awaitable[None]) -> None:
        try:
            await work
        except StasisError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 - of a resolver, or of ours: no snapshot is worth the run
            said = f"no snapshot was made: {type(error).__name__}: {error}"
            self._failed(StasisError(Failure(message=said, code="callback_failed")))

    def _failed(self, error: StasisError) -> None:
        self.failures.append(error)
        if error.code not in self._logged:
            self._logged.add(error.code)
            LOG.warning("%s (said once; the run goes on)", error, extra={"stasis_code": error.code})

    async def _snapshot(self, point: str, item: Mapping[str, Any] | None, is_begun: asyncio.Event) -> None:
        container = self._of()
        what = point.replace("_", " ")
        async with self._saving:
            begun = await container.begin_save(
                trigger=TRIGGERS[point],
                description=what if item is None else f"{what} {self._actions}",
                context=_described(item),
                run_id=self._run_id,
                labels=self._labels,
            )
            self.snapshots.append(begun.snapshot_id)
            is_begun.set()
            # What a process of its own fails with is known in this way only.
            await container.wait(begun)

    async def _find(self, arguments: Mapping[str, Any]) -> None:
        """Finds the container of the run that begins."""
        self._container = self._configured or await self._resolved(arguments)
        self._container = self._container or _named_in(arguments) or _named_in(arguments.get("metadata"))
        tools = [*self._tools, *(arguments.get("tools") or [])]
        self._container = self._container or next(filter(None, map(_container_of, tools)), None)
        self._container = self._container or os.environ.get("STASIS_CONTAINER") or None
        if self._container is None:
            raise _nowhere()

    async def _resolved(self, arguments: Mapping[str, Any]) -> str | None:
        found = self._resolver(arguments) if self._resolver is not None else None
        return await found if isinstance(found, Awaitable) else found

    def _of(self) -> AsyncContainer:
        if self._container is None:
            raise _nowhere()
        # Made here and not before, so that an agent also starts where there is no binary.
        self._local = self._local or AsyncLocal()
        return AsyncContainer(self._container, tenant=self._tenant, local=self._local)


def _nowhere() -> StasisError:
    said = "no container of the agent was found, so that there are no snapshots of it"
    hint = "name it: SnapshotCallback(container=…), resolver=…, or the variable STASIS_CONTAINER"
    return NotFound(Failure(message=said, code="not_found", hint=hint))


def _named_in(arguments: Any) -> str | None:
    if not isinstance(arguments, Mapping):
        return None
    found = (arguments.get(name) for name in NAMES)
    return next((one for one in found if isinstance(one, str) and one), None)


def _container_of(tool: Any) -> str | None:
    """The container that a tool works in: what it says itself, or its name where Docker provides it."""
    if isinstance(tool, Mapping):
        return _named_in(tool) or (_container_of(tool["computer"]) if "computer" in tool else None)
    for name in ("container_id", "container_name"):
        found = getattr(tool, name, None)
        if isinstance(found, str) and found:
            return found
    provider = getattr(tool, "provider_type", None)
    word = str(getattr(provider, "value", provider)).lower()
    named = getattr(tool, "name", None)
    return named if word == "docker" and isinstance(named, str) and named else None


def _described(item: Mapping[str, Any] | None) -> str | None:
    """An action in a line: which one, with what, and never the text that was typed."""
    if item is None:
        return None
    action = item.get("action")
    if isinstance(action, Mapping):
        shown = {
            name: value for name, value in action.items() if isinstance(value, int | float | bool) or name == "type"
        }
        return json.dumps(shown, sort_keys=True)[:CONTEXT_LENGTH]
    return str(item.get("name") or item.get("type") or "")[:CONTEXT_LENGTH] or None


def _is_enabled() -> bool:
    return os.environ.get("STASIS_SNAPSHOTS", "on").strip().lower() not in ("off", "0", "no", "false")


def _triggers() -> tuple[str, ...]:
    given = os.environ.get("STASIS_SNAPSHOT_TRIGGERS")
    if given is None:
        return USUAL_TRIGGERS
    words = [word.strip() for word in given.split(",") if word.strip()]
    unknown = [word for word in words if word not in TRIGGERS]
    if unknown:
        # A variable of the environment must not keep an agent from starting.
        LOG.warning(
            "STASIS_SNAPSHOT_TRIGGERS: no trigger is called %s: there are %s", ", ".join(unknown), ", ".join(TRIGGERS)
        )
    return tuple(word for word in words if word in TRIGGERS)
