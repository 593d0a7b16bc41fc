"""The callback for the CUA Agent SDK, in runs of the real `ComputerAgent` with a scripted model."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import IMAGE, Engine, Host
from stasis import AsyncLocal, errors

os.environ.setdefault("CUA_TELEMETRY", "off")
os.environ.setdefault("CUA_TELEMETRY_ENABLED", "false")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

try:
    from cua_agent import ComputerAgent
    from cua_agent.callbacks.base import AsyncCallbackHandler
    from cua_agent.decorators import register_agent
except ImportError:
    pytest.skip("there is no `cua-agent`: `check --integrations` installs it", allow_module_level=True)

from stasis.integrations.cua import SnapshotCallback


@register_agent(models=r"stasis-scripted")
class Scripted:
    """A model that clicks, types, calls a function, and then says that it is done."""

    async def predict_step(self, messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        step = sum(one.get("type") in ("computer_call", "function_call") for one in messages)
        actions = [{"type": "click", "x": 1, "y": 2, "button": "left"}, {"type": "type", "text": "hunter2"}]
        if step < len(actions):
            item = {"type": "computer_call", "call_id": f"c{step}", "action": actions[step], "status": "completed"}
        elif step == len(actions):
            item = {"type": "function_call", "call_id": "f", "name": "note", "arguments": "{}"}
        else:
            item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
        return {"output": [item], "usage": {}}

    async def predict_click(self, *_: Any, **__: Any) -> None:
        return None

    def get_capabilities(self) -> list[str]:
        return ["step"]


def computer() -> dict[str, Any]:
    """A computer of functions, as the framework takes one."""

    async def nothing(*_: Any, **__: Any) -> None:
        return None

    async def screenshot(*_: Any, **__: Any) -> str:
        # One white pixel.
        return "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="

    names = ("click", "type", "double_click", "scroll", "wait", "move", "keypress", "drag")
    return {"screenshot": screenshot, **dict.fromkeys(names, nothing)}


def note() -> str:
    """Notes something."""
    return "noted"


async def run(callback: SnapshotCallback, **more: Any) -> list[dict[str, Any]]:
    agent = ComputerAgent(
        model="stasis-scripted",
        tools=[computer(), note],
        callbacks=[callback],
        screenshot_delay=0,
        telemetry_enabled=False,
        **more,
    )
    outputs = []
    async for result in agent.run([{"role": "user", "content": "work"}]):
        outputs += result["output"]
    return outputs


def is_done(outputs: list[dict[str, Any]]) -> bool:
    return bool(outputs) and outputs[-1].get("role") == "assistant"


@pytest.fixture
def local(host: Host) -> AsyncLocal:
    environment = {**host.environment, "DOCKER_HOST": "unix:///nowhere/docker.sock"}
    return AsyncLocal(binary=host.binary, store=host.store, environment=environment)


@pytest.fixture
def web(engine: Engine, host: Host) -> Iterator[AsyncLocal]:
    engine.run("run", "--detach", "--network=none", "--stop-timeout=1", "--name=web", IMAGE, "sleep", "300")
    environment = {**host.environment, "DOCKER_HOST": engine.address}
    yield AsyncLocal(binary=host.binary, store=host.store, environment=environment)
    engine.run("rm", "--force", *engine.run("ps", "--all", "--quiet").split())


async def shown(callback: SnapshotCallback, local: AsyncLocal) -> list[dict[str, Any]]:
    """The snapshots that a run began, once they are complete."""
    from stasis import AsyncContainer
    from stasis.models import ContainerSaveBegun

    container = AsyncContainer("web", local=local)
    begun = [ContainerSaveBegun.from_json({"snapshot_id": one}) for one in callback.snapshots]
    return [dict((await container.wait(one, timeout=60)).raw) for one in begun]


def test_it_is_a_callback_of_the_framework(local: AsyncLocal) -> None:
    assert isinstance(SnapshotCallback("web", local=local), AsyncCallbackHandler)
    with pytest.raises(ValueError, match="sometimes"):
        SnapshotCallback("web", triggers=["sometimes"])


@pytest.mark.docker
async def test_there_are_snapshots_at_the_points_that_were_chosen(web: AsyncLocal) -> None:
    triggers = ["run_start", "before_action", "after_function", "run_end"]
    callback = SnapshotCallback("web", triggers=triggers, local=web, wait=True, labels={"team": "a"})
    assert is_done(await run(callback))
    assert callback.failures == [] and callback.skipped == 0
    context = callback.get_current_context()
    assert (context["container"], context["actions"], len(context["snapshots"])) == ("web", 3, 5)
    snapshots = await shown(callback, web)
    text = str(snapshots)
    for word in ("run_start", "before_action", "after_action", "run_end", str(context["run_id"])):
        assert word in text
    assert "hunter2" not in text, "what the agent typed stands in a snapshot"


@pytest.mark.docker
async def test_a_run_that_does_not_wait_has_those_that_come_in_time(web: AsyncLocal, engine: Engine) -> None:
    callback = SnapshotCallback("web", triggers=["run_start", "before_action", "run_end"], local=web)
    assert is_done(await run(callback))
    # One after the other: what would have been of a later action was left out.
    assert callback.failures == [] and len(callback.snapshots) >= 2
    assert len(callback.snapshots) + callback.skipped == 4
    await shown(callback, web)
    saved = await callback.create_manual_snapshot("by hand")
    engine.run("exec", "web", "sh", "-c", "echo bad > /state")
    restored = await callback.restore_latest_snapshot(name="web-2")
    assert restored.snapshot_id == saved.snapshot_id and restored.container_name == "web-2"


async def test_a_failure_is_typed_and_logged_once_and_the_run_goes_on(
    local: AsyncLocal, caplog: pytest.LogCaptureFixture
) -> None:
    callback = SnapshotCallback("web", triggers=["run_start", "before_action", "run_end"], local=local)
    with caplog.at_level(logging.WARNING, logger="stasis"):
        assert is_done(await run(callback))
    until = time.monotonic() + 30
    while not callback.failures and time.monotonic() < until:
        await asyncio.sleep(0.1)
    assert callback.failures and all(isinstance(one, errors.StasisError) for one in callback.failures)
    assert len([one for one in caplog.records if one.name == "stasis"]) == len({one.code for one in callback.failures})
    with pytest.raises(errors.StasisError):
        await callback.create_manual_snapshot()


async def test_a_slow_resolver_and_a_broken_one_keep_nobody(local: AsyncLocal) -> None:
    async def slow(_: Any) -> str:
        await asyncio.sleep(5)
        return "web"

    def broken(_: Any) -> str:
        raise KeyError("no such thing")

    begun = time.monotonic()
    late = SnapshotCallback(resolver=slow, local=local, patience=0.2)
    assert is_done(await run(late))
    assert time.monotonic() - begun < 4 and type(late.failures[0]) is errors.RequestTimeout
    callback = SnapshotCallback(resolver=broken, local=local)
    assert is_done(await run(callback))
    assert [one.code for one in callback.failures] == ["callback_failed"]


async def test_the_container_is_found(local: AsyncLocal, monkeypatch: pytest.MonkeyPatch) -> None:
    class Sandbox:
        container_name = "of-a-tool"

    class Machine:
        provider_type = "docker"
        name = "of-docker"

    async def found(callback: SnapshotCallback, **arguments: Any) -> str | None:
        await callback.on_run_start(arguments, [])
        container: str | None = callback.get_current_context()["container"]
        return container

    def made(**more: Any) -> SnapshotCallback:
        return SnapshotCallback(triggers=[], local=local, **more)

    assert await found(made(container="given"), container_name="argument") == "given"
    assert await found(made(resolver=lambda arguments: arguments["model"]), model="m") == "m"
    assert await found(made(), container_name="argument") == "argument"
    assert await found(made(), metadata={"container_id": "metadata"}) == "metadata"
    assert await found(made(tools=[Sandbox()])) == "of-a-tool"
    assert await found(made(), tools=[{"type": "computer", "computer": Machine()}]) == "of-docker"
    nowhere = made()
    assert await found(nowhere) is None and type(nowhere.failures[0]) is errors.NotFound
    monkeypatch.setenv("STASIS_CONTAINER", "variable")
    assert await found(made()) == "variable"


async def test_variables_turn_it_off_and_choose_the_points(local: AsyncLocal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STASIS_SNAPSHOTS", "off")
    callback = SnapshotCallback("web", local=local)
    assert is_done(await run(callback))
    assert not callback.enabled and callback.failures == [] and callback.snapshots == []
    monkeypatch.setenv("STASIS_SNAPSHOTS", "on")
    monkeypatch.setenv("STASIS_SNAPSHOT_TRIGGERS", "before_action, nonsense")
    assert SnapshotCallback("web", local=local).triggers == {"before_action"}
