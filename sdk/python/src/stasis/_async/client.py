"""The client of `stasis serve`."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from httpx import AsyncClient as HttpClient
from httpx import Timeout

from .. import _core as core
from .._core import Retries, Route
from .._models import RequestRow
from ._operation import AsyncOperation
from ._routes import AsyncRoutes

if TYPE_CHECKING:
    from typing_extensions import Self


class AsyncClient(AsyncRoutes):
    """Speaks to one `stasis serve`, for the tenant of its token.

    `timeout` is for one request: how long connecting, sending and the silence before an answer may take. The service ends
    a request after a minute itself, so that less makes little sense for what changes something.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        timeout: float = 70.0,
        connect_timeout: float = 10.0,
        retries: Retries | None = None,
        verify: bool | ssl.SSLContext = True,
    ) -> None:
        headers = {"user-agent": core.USER_AGENT}
        if token is not None:
            headers["authorization"] = f"Bearer {token.strip()}"
        http = HttpClient(
            base_url=base_url, headers=headers, timeout=Timeout(timeout, connect=connect_timeout), verify=verify
        )
        super().__init__(http, core.shown_url(base_url), retries or Retries())
        self._has_token = token is not None

    def __repr__(self) -> str:
        token = "token=***" if self._has_token else "token=None"
        return f"{type(self).__name__}({self._base_url!r}, {token})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def operation(self, id: str) -> AsyncOperation:  # noqa: A002
        """An operation that was begun before, to be waited for."""
        row: RequestRow = await self.show_operation(id)
        return AsyncOperation(self, {"operation_id": row.operation_id, "state": row.state})

    async def stream_file(self, kind: str, id: str, snapshot: str, path: str) -> AsyncGenerator[bytes, None]:  # noqa: A002
        """The bytes of a file in a snapshot, as they come. Raises where they break off: what came until then is not the file."""
        names = {"kind": kind, "id": id, "snapshot": snapshot}
        template = "/v1/subjects/{kind}/{id}/snapshots/{snapshot}/content"
        async with self._stream(Route("GET", template, path=names, query={"path": path})) as response:
            async for part in response.aiter_bytes():
                yield part

    async def read_file(self, kind: str, id: str, snapshot: str, path: str) -> bytes:  # noqa: A002
        """A whole file of a snapshot, in memory."""
        async with aclosing(self.stream_file(kind, id, snapshot, path)) as parts:
            return b"".join([part async for part in parts])

    async def download(
        self,
        kind: str,
        id: str,  # noqa: A002
        snapshot: str,
        path: str,
        to: str | os.PathLike[str],
    ) -> Path:
        """Writes a file of a snapshot to a path. What breaks off is not left behind."""
        target = Path(to)
        part = target.with_name(f".{target.name}.stasis-part")
        try:
            async with aclosing(self.stream_file(kind, id, snapshot, path)) as pieces:
                with part.open("wb") as file:
                    async for piece in pieces:
                        file.write(piece)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target
