"""Graph checkpoints of LangGraph tied to the files of a directory: going back in the graph goes back on disk.

    from langgraph.checkpoint.memory import InMemorySaver
    from stasis import Directory
    from stasis.integrations.langgraph import DirectorySaver

    graph = builder.compile(checkpointer=DirectorySaver(InMemorySaver(), Directory("project")))
    graph.invoke(input, {"configurable": {"thread_id": "1"}}, durability="sync")

*Always true:* the files that a graph checkpoint names are those that its next nodes begin with.

1. A run begins: the directory is rewound first if the run begins at a checkpoint that the directory is not at. What it is then
   is what the graph checkpoints of the input and of a fork name: no node has run.
2. After each step, while no node runs (`durability="sync"`), a file checkpoint is made, or the last one found to be unchanged; its name
   goes into the metadata of the graph checkpoint, which is stored after it.
3. Reading (`get_state`, `get_state_history`) and `update_state` never change the directory. An update of a checkpoint that the
   directory is not at takes over that checkpoint's files, and the run that begins with it goes back to them.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from .. import Directory
from ..errors import Failure, InvalidRequest, NotFound
from ..models import CheckpointRow, ProjectRestored, RestoredWorkspace

if TYPE_CHECKING:

    class BaseCheckpointSaver:
        """The base class of the framework, which type checkers need not have."""

        serde: Any

        def __init__(self, *, serde: Any = None) -> None: ...
else:
    from langgraph.checkpoint.base import BaseCheckpointSaver

LOG = logging.getLogger("stasis")

# What stands in the metadata of a graph checkpoint.
NOTE = "stasis"

# What the framework has in the configuration of a run, and not in that of somebody who only reads.
RUNTIME = "__pregel_runtime"
TASK = "__pregel_task_id"
DURABILITY = "__pregel_durability"
NAMESPACE = "checkpoint_ns"
MAP = "checkpoint_map"

# How much the clocks of a note and of a file checkpoint may differ.
CLOCK_SLACK_MS = 2000

Config = Mapping[str, Any]


class FilesGone(NotFound):
    """The files of a graph checkpoint are not there any more, or never were. Neither the graph nor the directory was changed."""


@dataclass(frozen=True)
class Files:
    """What a graph checkpoint knows of its files."""

    name: str
    """The file checkpoint, as `cp-3`; with `in_store`, the id of the snapshot."""
    hash: str | None
    """The digest of the contents: another checkpoint with the same one is as good."""
    noted_ms: int
    """When it was noted."""
    in_store: bool
    """Whether it is a snapshot in the store."""
    behind: bool = False
    """Whether the directory was elsewhere when it was noted, so that a run goes back first."""

    def as_metadata(self) -> dict[str, Any]:
        """What is stored."""
        return dict(vars(self))


class DirectorySaver(BaseCheckpointSaver):
    """A checkpointer that keeps the files of a directory with the graph checkpoints of another one.

    - `saver`: the checkpointer that stores the graph checkpoints: InMemorySaver, SqliteSaver, PostgresSaver or their like.
    - `directory`: what the nodes work in. One thread of the graph at a time: another thread has another directory.
    - `in_store`: files go to the store instead of the automatic checkpoints of this host. These are faster, and there are ten
      of them (`auto_max` in the settings of the workspace); snapshots in the store are there on other hosts, too, and stay as
      long as its retention keeps them.

    Runs need `durability="sync"`: otherwise the next step begins while the files of the last one are being saved. Going back
    leaves an undo (`directory.undo()`), which the log names. Where the files are gone, the run fails with `FilesGone` before
    anything changes.
    """

    def __init__(self, saver: Any, directory: Directory, *, in_store: bool = False) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver
        self.directory = directory
        self.in_store = in_store
        # Of each thread: the files that its run began with, until a graph checkpoint names them.
        self._begun: dict[str, Files | None] = {}
        # Of each thread: the graph checkpoint whose files it was taken back to, until a step follows.
        self._rewound: dict[str, str] = {}
        # Of each thread: its last run. It asks several times, and begins once.
        self._runs: dict[str, object] = {}

    # What the user calls.

    def rewind(self, config: Config) -> ProjectRestored | RestoredWorkspace:
        """Takes the directory back to the files of a graph checkpoint, the newest of the thread by default, and runs nothing.

        For what a node left half done when it failed: a run that is only repeated begins with it.
        """
        return self._rewind(_thread(config), self.saver.get_tuple(config))

    async def arewind(self, config: Config) -> ProjectRestored | RestoredWorkspace:
        """The same."""
        found = await self.saver.aget_tuple(config)
        return await asyncio.to_thread(self._rewind, _thread(config), found)

    # What the framework calls.

    def get_tuple(self, config: Config) -> Any:
        """A graph checkpoint. Where a run begins with it, the directory is taken to its files first."""
        found = self.saver.get_tuple(config)
        if self._begins(config):
            newest = self.saver.get_tuple(_newest(config)) if _id(config) else found
            self._begin(config, found, newest)
        return found

    async def aget_tuple(self, config: Config) -> Any:
        """The same."""
        found = await self.saver.aget_tuple(config)
        if self._begins(config):
            newest = await self.saver.aget_tuple(_newest(config)) if _id(config) else found
            await asyncio.to_thread(self._begin, config, found, newest)
        return found

    def put(self, config: Config, checkpoint: Any, metadata: Mapping[str, Any], new_versions: Any) -> Any:
        """Stores a graph checkpoint with the name of its files."""
        if _is_nested(config):
            return self.saver.put(config, checkpoint, metadata, new_versions)
        if RUNTIME in _conf(config):
            files = self._of_step(config, metadata)
        else:
            parent = self.saver.get_tuple(config) if _id(config) else None
            files = self._of_update(config, parent, self.saver.get_tuple(_newest(config)))
        return self.saver.put(config, checkpoint, _noted(metadata, files), new_versions)

    async def aput(self, config: Config, checkpoint: Any, metadata: Mapping[str, Any], new_versions: Any) -> Any:
        """The same."""
        if _is_nested(config):
            return await self.saver.aput(config, checkpoint, metadata, new_versions)
        if RUNTIME in _conf(config):
            files = await asyncio.to_thread(self._of_step, config, metadata)
        else:
            parent = await self.saver.aget_tuple(config) if _id(config) else None
            newest = await self.saver.aget_tuple(_newest(config))
            files = await asyncio.to_thread(self._of_update, config, parent, newest)
        return await self.saver.aput(config, checkpoint, _noted(metadata, files), new_versions)

    # How it is done.

    def _begins(self, config: Config) -> bool:
        """Whether a run asks, and for the first time."""
        run, thread = _conf(config).get(RUNTIME), _thread(config)
        if run is None or _is_nested(config) or self._runs.get(thread) is run:
            return False
        self._runs[thread] = run
        return True

    def _begin(self, config: Config, found: Any, newest: Any) -> None:
        """A run begins: the directory becomes what the graph checkpoint says it is."""
        thread = _thread(config)
        _require_sync(config)
        if found is None:
            self._begun[thread] = self._save()
        elif self._is_at(thread, found, newest):
            # Also what somebody did in the directory between two runs.
            self._begun[thread] = self._save()
        else:
            self._rewind(thread, found)
            self._begun[thread] = _files(found)

    def _is_at(self, thread: str, found: Any, newest: Any) -> bool:
        """Whether the directory goes with the graph checkpoint already."""
        rewound = self._rewound.get(thread)
        if rewound is not None:
            return rewound == str(found.checkpoint["id"])
        files = _files(found)
        return found.checkpoint["id"] == newest.checkpoint["id"] and not (files is not None and files.behind)

    def _of_step(self, config: Config, metadata: Mapping[str, Any]) -> Files | None:
        """The files of a graph checkpoint that a run stores."""
        thread = _thread(config)
        begun = self._begun.pop(thread, None)
        if metadata.get("source") == "loop" or begun is None:
            # A step is done; or this run did not begin here.
            begun = self._save()
        self._rewound.pop(thread, None)
        return begun

    def _of_update(self, config: Config, parent: Any, newest: Any) -> Files | None:
        """The files of a graph checkpoint that somebody makes of another one, without a run."""
        thread = _thread(config)
        if parent is None or self._is_at(thread, parent, newest):
            self._rewound.pop(thread, None)
            return self._save()
        files = _files(parent)
        return None if files is None else replace(files, behind=True)

    def _save(self) -> Files:
        if self.in_store:
            saved = self.directory.save(allow_empty=True, accept_shrink=True, force=True)
            return Files(saved.snapshot_id, None, _now_ms(), in_store=True)
        made = self.directory.checkpoint(automatic=True)
        if made.left_out_count:
            LOG.warning(
                "%s of %s has not everything: %d left out", made.checkpoint, self.directory.path, made.left_out_count
            )
        return Files(made.checkpoint, made.hash, _now_ms(), in_store=False)

    def _rewind(self, thread: str, found: Any) -> ProjectRestored | RestoredWorkspace:
        files = _files(found) if found is not None else None
        if found is None or files is None:
            raise _gone(thread, found, None)
        try:
            done = self._go_back(files)
        except NotFound as error:
            raise _gone(thread, found, files) from error
        self._rewound[thread] = str(found.checkpoint["id"])
        return done

    def _go_back(self, files: Files) -> ProjectRestored | RestoredWorkspace:
        if files.in_store:
            restored = self.directory.restore(files.name)
            LOG.info("%s is snapshot %s again; `undo` takes it back", self.directory.path, files.name[:8])
            return restored
        name = _still_there(files, self.directory.checkpoints().items)
        rewound = self.directory.rewind(name)
        LOG.info("%s is %s again; undo: %s", self.directory.path, name, rewound.undo)
        return rewound

    # What the other checkpointer does alone.

    @property
    def config_specs(self) -> Any:
        return self.saver.config_specs

    def list(self, config: Any, **options: Any) -> Iterator[Any]:
        yield from self.saver.list(config, **options)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        async for found in self.saver.alist(config, **options):
            yield found

    def put_writes(self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        self.saver.put_writes(config, writes, task_id, *_path(self.saver.put_writes, task_path))

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self.saver.aput_writes(config, writes, task_id, *_path(self.saver.aput_writes, task_path))

    def delete_thread(self, thread_id: str) -> None:
        self._forget(thread_id)
        self.saver.delete_thread(thread_id)

    async def adelete_thread(self, thread_id: str) -> None:
        self._forget(thread_id)
        await self.saver.adelete_thread(thread_id)

    def _forget(self, thread: str) -> None:
        self._begun.pop(str(thread), None)
        self._rewound.pop(str(thread), None)
        self._runs.pop(str(thread), None)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.saver.delete_for_runs(run_ids)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self.saver.adelete_for_runs(run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.saver.copy_thread(source_thread_id, target_thread_id)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self.saver.acopy_thread(source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], **options: Any) -> None:
        self.saver.prune(thread_ids, **options)

    async def aprune(self, thread_ids: Sequence[str], **options: Any) -> None:
        await self.saver.aprune(thread_ids, **options)

    def get_delta_channel_history(self, **options: Any) -> Any:
        return self.saver.get_delta_channel_history(**options)

    async def aget_delta_channel_history(self, **options: Any) -> Any:
        return await self.saver.aget_delta_channel_history(**options)

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Any) -> DirectorySaver:
        clone = copy.copy(self)
        clone.saver = self.saver.with_allowlist(extra_allowlist)
        clone.serde = clone.saver.serde
        return clone


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _conf(config: Config) -> Mapping[str, Any]:
    found = config.get("configurable") or {}
    return found if isinstance(found, Mapping) else {}


def _thread(config: Config) -> str:
    return str(_conf(config).get("thread_id"))


def _id(config: Config) -> str | None:
    return _conf(config).get("checkpoint_id") or None


def _newest(config: Config) -> dict[str, Any]:
    return {"configurable": {"thread_id": _thread(config), NAMESPACE: ""}}


def _is_nested(config: Config) -> bool:
    """Whether it is of a graph in a node of another one: several of them may be at work in the directory."""
    conf = _conf(config)
    return bool(conf.get(NAMESPACE)) or TASK in conf


def _require_sync(config: Config) -> None:
    conf = _conf(config)
    if conf.get(DURABILITY) != "sync":
        said = "the next step would begin while the files of the last one are being saved"
        hint = 'run the graph with durability="sync", as in graph.invoke(input, config, durability="sync")'
        raise InvalidRequest(Failure(message=said, code="invalid_request", hint=hint))
    if any(namespace for namespace in conf.get(MAP) or {}):
        said = "files are tied to the checkpoints of the graph itself, and not to those of a graph in one of its nodes"
        hint = "go back to the checkpoint of the graph before that node"
        raise InvalidRequest(Failure(message=said, code="invalid_request", hint=hint))


def _files(found: Any) -> Files | None:
    noted = found.metadata.get(NOTE)
    if not isinstance(noted, Mapping):
        return None
    # What a later version notes besides is left out.
    return Files(**{one.name: noted[one.name] for one in fields(Files) if one.name in noted})


def _noted(metadata: Mapping[str, Any], files: Files | None) -> dict[str, Any]:
    kept = {name: value for name, value in metadata.items() if name != NOTE}
    return kept if files is None else {**kept, NOTE: files.as_metadata()}


def _still_there(files: Files, rows: Sequence[CheckpointRow]) -> str:
    """The file checkpoint, or another one with the same contents; never one that has only its name."""

    def is_it(row: CheckpointRow) -> bool:
        if row.checkpoint != files.name or row.epoch_millis > files.noted_ms + CLOCK_SLACK_MS:
            return False
        return row.hash is None or files.hash is None or row.hash == files.hash

    same = [row for row in rows if row.complete and files.hash is not None and row.hash == files.hash]
    found = next(filter(is_it, rows), None) or next(iter(same), None)
    if found is None:
        raise NotFound(Failure(message=f"there is no checkpoint `{files.name}` any more", code="not_found"))
    return found.checkpoint


def _gone(thread: str, found: Any, files: Files | None) -> FilesGone:
    which = "that was asked for" if found is None else str(found.checkpoint["id"])
    said = f"graph checkpoint {which} of thread {thread} has no files with it"
    hint = "only checkpoints that a DirectorySaver stored have files"
    if files is not None:
        what = "snapshot" if files.in_store else "checkpoint"
        said = f"the files of graph checkpoint {which} of thread {thread} are gone: "
        said += f"{what} {files.name} was deleted, or made room for others"
        hint = "raise `auto_max` in the settings of the workspace, or use DirectorySaver(…, in_store=True)"
    known = {} if files is None else {"files": files.as_metadata()}
    return FilesGone(Failure(message=said, code="not_found", hint=hint, fields=known))


def _path(put_writes: Any, task_path: str) -> list[str]:
    """The path of a task, for those that take it: older checkpointers do not."""
    return [task_path] if "task_path" in inspect.signature(put_writes).parameters else []
