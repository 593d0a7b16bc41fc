"""Containers, where there is a Docker engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from conftest import Host
from stasis import Container, errors

DOCKER = shutil.which("docker")
IMAGE = os.environ.get("STASIS_TEST_IMAGE", "busybox")


def docker(*words: str) -> str:
    return subprocess.run([DOCKER or "docker", *words], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def container() -> Iterator[str]:
    if (
        DOCKER is None
        or subprocess.run([DOCKER, "image", "inspect", IMAGE], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"no Docker engine with the image {IMAGE}")
    name = f"stasis-sdk-{uuid.uuid4().hex[:8]}"
    docker("run", "--detach", "--name", name, IMAGE, "sleep", "300")
    yield name
    made = docker("ps", "--all", "--quiet", "--filter", f"name={name}").split()
    docker("rm", "--force", *made)


@pytest.mark.docker
def test_a_container_is_saved_and_taken_back(container: str, host: Host) -> None:
    web = Container(container, local=host.local)
    docker("exec", container, "sh", "-c", "echo good > /state")
    saved = web.save(trigger="before_action", description="before the bad one", run_id="r-1", labels={"step": "1"})
    docker("exec", container, "sh", "-c", "echo bad > /state")
    assert [one.snapshot_id for one in web.snapshots().items] == [saved.snapshot_id]
    assert web.validate() is not None
    web.restore(saved.snapshot_id, replace=True)
    assert docker("exec", container, "cat", "/state") == "good"
    web.delete(saved.snapshot_id)


def test_a_container_without_an_engine_is_an_error_that_is_typed(host: Host) -> None:
    web = Container("web", local=host.local)
    web._local._setup.environment["DOCKER_HOST"] = "unix:///nowhere/docker.sock"  # type: ignore[index]
    with pytest.raises(errors.StasisError) as caught:
        web.save()
    assert caught.value.exit_code
