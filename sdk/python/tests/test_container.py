"""Containers of a Docker engine of our own, which is started for these tests."""

from __future__ import annotations

import pytest

from conftest import IMAGE, Engine, Host
from stasis import AsyncContainer, AsyncLocal, Container, Local, errors


@pytest.mark.docker
def test_a_container_is_saved_and_taken_back(engine: Engine, host: Host) -> None:
    engine.run("run", "--detach", "--network=none", "--stop-timeout=1", "--name=web", IMAGE, "sleep", "300")
    web = Container("web", local=engine.local(host))
    engine.run("exec", "web", "sh", "-c", "echo good > /state")
    saved = web.save(trigger="before_action", description="before the bad one", run_id="r-1", labels={"step": "1"})
    engine.run("exec", "web", "sh", "-c", "echo bad > /state")
    assert [one.snapshot_id for one in web.snapshots().items] == [saved.snapshot_id]
    assert web.show(saved.snapshot_id).raw["schema"] == "stasis.container.show/1"
    assert web.validate().raw["schema"] == "stasis.container.validate/1"

    restored = web.restore(saved.snapshot_id, replace=True)
    assert restored.started and engine.run("exec", "web", "cat", "/state") == "good"
    # What was replaced was saved first.
    assert restored.safety_snapshot_id in {one.snapshot_id for one in web.snapshots().items}
    web.delete(saved.snapshot_id)
    with pytest.raises(errors.NotFound):
        web.show(saved.snapshot_id)


@pytest.mark.docker
async def test_a_save_that_nobody_waits_for_is_there_later(engine: Engine, host: Host) -> None:
    engine.run("run", "--detach", "--network=none", "--stop-timeout=1", "--name=later", IMAGE, "sleep", "300")
    local = AsyncLocal(
        binary=host.binary, store=host.store, environment={**host.environment, "DOCKER_HOST": engine.address}
    )
    later = AsyncContainer("later", local=local)
    begun = await later.begin_save(trigger="run_start")
    shown = await later.wait(begun, timeout=60)
    assert shown.raw["snapshot"] == begun.snapshot_id


def test_an_engine_that_is_not_there_is_an_error_that_is_typed(host: Host) -> None:
    environment = {**host.environment, "DOCKER_HOST": "unix:///nowhere/docker.sock"}
    web = Container("web", local=Local(binary=host.binary, store=host.store, environment=environment))
    with pytest.raises(errors.StasisError, match="stasis container create") as caught:
        web.save()
    assert caught.value.exit_code
