"""Sends what `_core` says, and hands the answer back to it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from httpx import AsyncClient as HttpClient
from httpx import HTTPError, Response, Timeout

from .. import _async_io as io
from .. import _core as core
from .._core import Request, Retries, Route
from .._model import ModelType
from ..errors import StasisError

if TYPE_CHECKING:
    from ._operation import AsyncOperation


class AsyncSender:
    """A connection to one service."""

    def __init__(self, http: HttpClient, base_url: str, retries: Retries) -> None:
        self._http = http
        self._base_url = base_url
        self._retries = retries

    async def _send(self, route: Route) -> Any:
        """Sends a request until there is an answer that counts."""
        sent = core.request(route)
        made = 0
        while True:
            made += 1
            try:
                return await self._once(sent)
            except StasisError as error:
                pause = self._retries.pause(made, error)
                if pause is None:
                    raise
            await io.sleep(pause)

    async def _once(self, sent: Request) -> Any:
        try:
            response = await self._http.request(
                sent.method, sent.path, params=sent.params, headers=sent.headers, content=sent.content
            )
        except HTTPError as why:
            raise core.unreachable(sent, self._base_url, why) from why
        return core.answer(sent, response.status_code, response.headers, response.content)

    async def _call(self, route: Route, cls: type[ModelType]) -> ModelType:
        return cls.from_json(await self._send(route))

    async def _json(self, route: Route) -> Any:
        return await self._send(route)

    async def _begin(self, route: Route) -> AsyncOperation:
        from ._operation import AsyncOperation

        return AsyncOperation(self, await self._send(route))

    @asynccontextmanager
    async def _stream(self, route: Route) -> AsyncIterator[Response]:
        """An answer that is read as it comes. It may be silent for as long as the service lets a stream be."""
        sent = core.request(route)
        headers = {**sent.headers, "accept": "*/*"}
        patient = Timeout(self._http.timeout.connect, read=60.0)
        try:
            async with self._http.stream(
                sent.method, sent.path, params=sent.params, headers=headers, timeout=patient
            ) as response:
                if response.status_code != 200:
                    content = await response.aread()
                    raise core.problem(sent, response.status_code, response.headers, content)
                yield response
        except HTTPError as why:
            raise core.unreachable(sent, self._base_url, why) from why

    async def _events(self, route: Route) -> AsyncGenerator[tuple[str, Any], None]:
        """The server-sent events of a route."""
        reader = core.EventReader()
        async with self._stream(route) as response:
            async for line in response.aiter_lines():
                event = reader.line(line)
                if event is not None:
                    yield event[0], json.loads(event[1])
