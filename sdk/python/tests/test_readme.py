"""What the README shows is run as it stands, one block after the other, in one directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Host, Server

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"<!-- executed(?:: (\w+))? -->\n```python\n(.*?)```", README, re.DOTALL)


def run(host: Host, place: Path, code: str, **names: object) -> str:
    """Runs a block as a program; what it says."""
    given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    environment = {**os.environ, **host.environment, "STASIS_BIN": host.binary, "STASIS_STORE": host.store}
    done = subprocess.run(
        [sys.executable, "-c", given + code], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def blocks(kind: str) -> list[str]:
    found = [code for needs, code in BLOCKS if needs == kind]
    assert found, f"the README has no block that is executed as `{kind}`"
    return found


def test_every_block_of_python_is_executed() -> None:
    assert README.count("```python") == len(BLOCKS)


def test_directories(host: Host, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "main.py").write_text("print('one')\n")
    said = [run(host, tmp_path, code) for code in [*blocks(""), *blocks("async")]]
    assert "main.py" in said[0] and "promoted race-1" in said[1]
    assert (project / "main.py").read_text().startswith("print(")


def test_the_service(server: Server) -> None:
    for code in blocks("server"):
        run(server.host, server.root, code, URL=server.url, TOKEN=server.token(scope="write"))


@pytest.mark.browser
def test_a_profile(host: Host, chromium: str, tmp_path: Path) -> None:
    assert chromium
    page = (tmp_path / "page.html").as_uri()
    (tmp_path / "page.html").write_text("hello")
    (code,) = blocks("browser")
    said = [run(host, tmp_path, code, SITE=page, SANDBOX=os.getuid() != 0) for _ in range(2)]
    assert "nobody is logged in: no_snapshot" in said[0] and "captured False False False" in said[0]
    assert "nobody is logged in" not in said[1]
