# Generated from `_async/_operation.py` by `scripts/generate_models.py`; do not edit.
"""Work that outlives the request that began it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from .. import _core as core
from .. import _sync_io as io
from .._core import Route
from .._model import ModelType
from .._models import RequestProgress, RequestRow
from ..errors import ServerUnreachable, StasisError
from ._sender import Sender

# How long is waited between two looks at an operation whose events cannot be had.
PAUSE = 1.0

# How often in a row a service may not answer, while an operation is waited for.
PATIENCE = 30


class Operation:
    """Work on the server, which goes on whether anybody waits for it or not."""

    def __init__(self, sender: Sender, accepted: dict[str, Any]) -> None:
        self._sender = sender
        self.id = str(accepted["operation_id"])
        """What `show_operation` takes."""
        self.state = str(accepted["state"])
        """How it stood when it was last looked at."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.state!r})"

    def look(self) -> RequestRow:
        """How it stands now."""
        return RequestRow.from_json(self._look())

    def wait(self, progress: Callable[[RequestProgress], None] | None = None) -> Any:
        """Waits for the end and returns the answer, as JSON; raises what it failed with.

        `progress` is called whenever there is something new.
        """
        return core.outcome(self._end(progress), lambda answer: answer)

    def result(self, cls: type[ModelType], progress: Callable[[RequestProgress], None] | None = None) -> ModelType:
        """Waits for the end and reads the answer."""
        return core.outcome(self._end(progress), cls.from_json)

    def _look(self) -> dict[str, Any]:
        row: dict[str, Any] = self._sender._send(Route("GET", "/v1/operations/{id}", path={"id": self.id}))
        self.state = str(row.get("state"))
        return row

    def _end(self, progress: Callable[[RequestProgress], None] | None) -> dict[str, Any]:
        """The operation as it ended: from its events, and where these break off, by looking."""
        silent = 0
        while True:
            try:
                row = self._followed(progress) or self._look()
                silent = 0
            except ServerUnreachable:
                # It goes on without us; a service that is restarted answers again.
                silent += 1
                if silent >= PATIENCE:
                    raise
                row = {}
            if core.is_over(row):
                self.state = str(row["state"])
                return row
            io.sleep(PAUSE)

    def _followed(self, progress: Callable[[RequestProgress], None] | None) -> dict[str, Any] | None:
        """Listens until the stream ends; what it ended with, if that is the end of the operation."""
        route = Route("GET", "/v1/operations/{id}/events", path={"id": self.id})
        try:
            with closing(self._sender._events(route)) as events:
                for name, data in events:
                    if name == "progress" and progress is not None:
                        progress(RequestProgress.from_json(data))
                    if name == "end":
                        ended: dict[str, Any] = data
                        return ended
        except ServerUnreachable:
            return None
        except StasisError as error:
            # A tenant has so many streams at once; whoever has none looks now and then.
            if error.code not in core.PASSING:
                raise
        return None
