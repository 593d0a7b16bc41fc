"""Containers of a Docker engine: snapshots of them with their volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import _async_io as io
from .._models import (
    ContainerRestored,
    ContainerSaveBegun,
    ContainerSaved,
    ContainerSnapshots,
    ContainerSnapshotsDeleted,
    ContainerSnapshotShown,
    ContainerValidated,
)
from ..errors import LeaseHeld
from .local import AsyncLocal


class AsyncContainer:
    """A container of the engine that the binary finds (DOCKER_HOST, else the usual socket)."""

    def __init__(self, name: str, *, tenant: str | None = None, local: AsyncLocal | None = None) -> None:
        self.name = name
        self.tenant = tenant
        self._local = local or AsyncLocal()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def save(
        self,
        *,
        trigger: str = "manual",
        description: str | None = None,
        context: str | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        portable: bool = False,
        strict: bool = False,
        binds: Sequence[str] = (),
    ) -> ContainerSaved:
        """Saves the container with its volumes. It goes on meanwhile, but for a moment in which it stands still."""
        words = self._words(trigger, description, context, run_id, labels)
        words += [*(["--portable"] if portable else []), *(["--strict"] if strict else [])]
        words += [f"--bind={path}" for path in binds]
        return await self._local.call(ContainerSaved, "container", "create", *words, "--", self.name)

    async def begin_save(
        self,
        *,
        trigger: str = "manual",
        description: str | None = None,
        context: str | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> ContainerSaveBegun:
        """The same without waiting: a process of its own makes the snapshot, and the answer says what it will be called."""
        words = self._words(trigger, description, context, run_id, labels)
        return await self._local.call(ContainerSaveBegun, "container", "create", "--detach", *words, "--", self.name)

    async def wait(self, begun: ContainerSaveBegun, *, timeout: float = 600.0) -> ContainerSnapshotShown:
        """Waits for a snapshot that was begun; raises what it failed with, or `LeaseHeld` where it is still being made."""
        pause, waited = 0.1, 0.0
        while True:
            try:
                return await self.show(begun.snapshot_id)
            except LeaseHeld:
                if waited >= timeout:
                    raise
            await io.sleep(pause)
            waited += pause
            pause = min(2 * pause, 2.0)

    async def restore(
        self,
        snapshot: str = "latest",
        *,
        replace: bool = False,
        name: str | None = None,
        start: bool = True,
        dry_run: bool = False,
    ) -> ContainerRestored:
        """Makes a container of a snapshot: beside this one, or instead of it, which is saved first."""
        words = [f"--mode={'replace' if replace else 'new'}", "--yes"]
        words += [*(["--dry-run"] if dry_run else []), *([] if start else ["--no-start"])]
        if name is not None:
            words.append(f"--name={name}")
        words += self._tenant()
        return await self._local.call(ContainerRestored, "container", "restore", *words, "--", snapshot, self.name)

    async def snapshots(self) -> ContainerSnapshots:
        """The snapshots of the container."""
        return await self._local.call(ContainerSnapshots, "container", "list", *self._tenant(), "--", self.name)

    async def show(self, snapshot: str = "latest") -> ContainerSnapshotShown:
        """Everything that is known of a snapshot; values of the environment are masked."""
        return await self._local.call(
            ContainerSnapshotShown, "container", "show", *self._tenant(), "--", snapshot, self.name
        )

    async def delete(self, snapshot: str) -> ContainerSnapshotsDeleted:
        """Deletes a snapshot with its image."""
        return await self._local.call(
            ContainerSnapshotsDeleted, "container", "delete", "--yes", *self._tenant(), "--", snapshot, self.name
        )

    async def validate(self) -> ContainerValidated:
        """Says what a snapshot of the container would have, and what not, without making one."""
        return await self._local.call(ContainerValidated, "container", "validate", *self._tenant(), "--", self.name)

    def _tenant(self) -> list[str]:
        return [] if self.tenant is None else [f"--tenant={self.tenant}"]

    def _words(
        self,
        trigger: str,
        description: str | None,
        context: str | None,
        run_id: str | None,
        labels: Mapping[str, str] | None,
    ) -> list[str]:
        named = {"--description": description, "--context": context, "--run-id": run_id}
        words = [f"--trigger={trigger}", *[f"{name}={value}" for name, value in named.items() if value is not None]]
        words += [f"--label={key}={value}" for key, value in (labels or {}).items()]
        return words + self._tenant()
