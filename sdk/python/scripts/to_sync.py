"""Makes the synchronous half of the SDK from the asynchronous one, so that there is one source of both.

Words are replaced and nothing else: what is awaited is called, and names that say `async` lose it. What the two halves do
differently (processes, time, tasks) is in `_async_io.py` and `_sync_io.py`, which have the same names in them.
"""

from __future__ import annotations

import re

HEADER = "# Generated from `_async/{name}` by `scripts/generate_models.py`; do not edit.\n"

WORDS = [
    (r"\basync def\b", "def"),
    (r"\basync with\b", "with"),
    (r"\basync for\b", "for"),
    (r"\bawait ", ""),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\b__aiter__\b", "__iter__"),
    (r"\b__anext__\b", "__next__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\baclose\b", "close"),
    (r"\baiter_lines\b", "iter_lines"),
    (r"\baiter_bytes\b", "iter_bytes"),
    (r"\baread\b", "read"),
    (r"\b_async_io\b", "_sync_io"),
    (r"\b_async\b", "_sync"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAsyncGenerator\[(.+?), None\](?=[\],):])", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\baclosing\b", "closing"),
    (r"\bAwaitable\[([\w.\[\], |]+)\](?=[\],)])", r"\1"),
    (r"\bAsyncClient as HttpClient\b", "Client as HttpClient"),
    (r"\bAsyncBaseTransport\b", "BaseTransport"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basynchronous\b", "synchronous"),
]


def synced(text: str, name: str) -> str:
    """The text of a module of the asynchronous half, as the other half has it."""
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    return HEADER.format(name=name) + text
