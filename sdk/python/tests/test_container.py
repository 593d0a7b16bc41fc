"""Containers of a Docker engine of our own, which is started for these tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Host, missing
from stasis import AsyncContainer, AsyncLocal, Container, Local, errors

IMAGE = "stasis-sdk-test"
PROGRAMS = ["sh", "cat", "sleep", "echo"]


@dataclass(frozen=True)
class Engine:
    """A running Docker engine."""

    address: str

    def run(self, *words: str) -> str:
        command = ["docker", "--host", self.address, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def local(self, host: Host) -> Local:
        return Local(
            binary=host.binary, store=host.store, environment={**host.environment, "DOCKER_HOST": self.address}
        )


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    for program in ("dockerd", "docker", "busybox"):
        if shutil.which(program) is None:
            missing(f"there is no `{program}`: see scripts/parts")
    if os.getuid() != 0:
        missing("a Docker engine is started by root only")
    # A socket has a short path.
    place = Path(tempfile.mkdtemp(prefix="sdk-", dir="/tmp"))
    found = Engine(f"unix://{place}/socket")
    words = ["dockerd", "--host", found.address, "--data-root", f"{place}/data", "--exec-root", f"{place}/exec"]
    words += [
        "--pidfile",
        f"{place}/pid",
        f"--cgroup-parent=/{place.name}",
        "--exec-opt",
        "native.cgroupdriver=cgroupfs",
    ]
    words += ["--iptables=false", "--ip6tables=false", "--bridge=none"]
    with (place / "log").open("wb") as log:
        daemon = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while subprocess.run(["docker", "--host", found.address, "info"], capture_output=True, check=False).returncode:
            assert daemon.poll() is None and time.monotonic() < until, (place / "log").read_text()[-2000:]
            time.sleep(0.2)
        import_image(found, place)
        yield found
        containers = found.run("ps", "--all", "--quiet").split()
        if containers:
            found.run("rm", "--force", *containers)
    finally:
        daemon.terminate()
        daemon.wait(60)
        subprocess.run(["umount", "-l", *map(str, place.glob("data/*/*/merged"))], capture_output=True, check=False)
        shutil.rmtree(place, ignore_errors=True)


def import_image(engine: Engine, place: Path) -> None:
    """A static busybox, and links for the programs that the tests use."""
    programs = place / "image" / "bin"
    programs.mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "busybox", programs / "busybox")
    for name in PROGRAMS:
        (programs / name).symlink_to("busybox")
    subprocess.run(["tar", "-C", place / "image", "-cf", place / "image.tar", "."], check=True)
    engine.run("import", f"{place}/image.tar", IMAGE)


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
