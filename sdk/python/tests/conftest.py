"""What every test has: the real binary, a store of its own, and a real `stasis serve` on loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from stasis import Client, Local

# What the image of the test engine is called, and what is in it.
IMAGE = "stasis-sdk-test"
PROGRAMS = ["sh", "cat", "sleep", "echo", "rm"]

REPOSITORY = Path(__file__).resolve().parents[3]


def _binary() -> str:
    named = os.environ.get("STASIS_BIN")
    candidates = [Path(named)] if named else [REPOSITORY / "target" / "debug" / "stasis"]
    for candidate in candidates:
        if candidate.is_file():
            return str(candidate)
    pytest.exit(f"no stasis binary at {candidates[0]}: build it, or set STASIS_BIN", returncode=2)


def missing(what: str) -> NoReturn:
    """Skips a test for want of a part; where all parts must be there, that is a failure."""
    if "STASIS_REQUIRE_PARTS" in os.environ:
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def binary() -> str:
    return _binary()


@dataclass(frozen=True)
class Host:
    """A host: a home and a state of its own, and a store that others may share."""

    name: str
    home: Path
    store: str
    binary: str

    @property
    def environment(self) -> dict[str, str]:
        places = {
            "HOME": self.home,
            "XDG_CONFIG_HOME": self.home / "config",
            "XDG_DATA_HOME": self.home / "data",
            "XDG_STATE_HOME": self.home / "state",
            "XDG_CACHE_HOME": self.home / "cache",
        }
        return {name: str(path) for name, path in places.items()}

    @property
    def local(self) -> Local:
        return Local(binary=self.binary, store=self.store, environment=self.environment)

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [self.binary, "--store", self.store, *words]
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=check)


Hosts = Callable[[str], Host]


@pytest.fixture
def store(tmp_path: Path) -> str:
    place = tmp_path / "store"
    place.mkdir()
    return str(place)


@pytest.fixture
def hosts(tmp_path: Path, store: str, binary: str) -> Hosts:
    """Makes hosts with one store."""

    def made(name: str) -> Host:
        home = tmp_path / name
        home.mkdir(exist_ok=True)
        return Host(name, home, store, binary)

    return made


@pytest.fixture
def host(hosts: Hosts) -> Host:
    return hosts("host")


@pytest.fixture
def local(host: Host) -> Local:
    return host.local


@dataclass(frozen=True)
class Server:
    """A running service."""

    url: str
    host: Host
    root: Path

    def token(self, tenant: str = "default", scope: str = "admin", *, on_host: bool = False) -> str:
        words = ["token", "create", "--tenant", tenant, "--scope", scope, *(["--host"] if on_host else [])]
        return self.host.run(*words).stdout.splitlines()[-1]

    def client(self, tenant: str = "default", scope: str = "admin", *, on_host: bool = False) -> Client:
        return Client(self.url, token=self.token(tenant, scope, on_host=on_host))


@pytest.fixture
def server(host: Host, tmp_path: Path) -> Iterator[Server]:
    with serving(host, tmp_path / "root") as running:
        yield running


@contextmanager
def serving(host: Host, root: Path, *more: str) -> Iterator[Server]:
    """A service on a port of its own, while the block runs."""
    root.mkdir()
    words = [
        host.binary,
        "--json",
        "--store",
        host.store,
        "serve",
        "--listen=127.0.0.1:0",
        "--no-jobs",
        f"--root={root}",
    ]
    process = subprocess.Popen(
        [*words, *more],
        env={**os.environ, **host.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            line = process.stdout.readline()
            assert line, f"the service ended: {text}"
            text += line
        found = json.loads(text)
        yield Server(found["url"], host, root)
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium")
    if found is None:
        missing("there is no `chromium`: install Debian's package of that name")
    return found


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


@pytest.fixture(scope="session")
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
