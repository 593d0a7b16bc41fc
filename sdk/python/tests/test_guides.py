"""What the guides of the SDK show is run as it stands, and is what lies in `examples/`."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import IMAGE, REPOSITORY, Engine, Host, missing

GUIDES = REPOSITORY / "docs" / "guides"
EXAMPLES = REPOSITORY / "examples"
FILE = re.compile(r"<!-- file: examples/(\w+\.py) -->\n```python\n(.*?)```", re.DOTALL)
RECIPE = re.compile(r"<!-- executed: (\w+) -->\n```python\n(.*?)```", re.DOTALL)

GUIDE_OF = {
    "login.py": "login-in-python.md",
    "best_of_four.py": "best-of-n.md",
    "rollback.py": "container-rollback.md",
    "sleep.py": "sleeping-sessions.md",
    "graph.py": "langgraph.md",
}

# What the programs of the recipes do once the code of the guide has run.
OPENAI = """
import asyncio
import json
from agents import Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class Scripted(Model):
    '''Calls the tool until it has answered, and says that it is done.'''

    def __init__(self):
        self.turns = 0

    async def get_response(self, *given, **named):
        self.turns += 1
        if self.turns == 1:
            words = json.dumps({"old": "color", "new": "colour"})
            item = ResponseFunctionToolCall(arguments=words, call_id="c", name="rename", type="function_call")
        else:
            text = ResponseOutputText(annotations=[], text="done", type="output_text")
            item = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *given, **named):
        raise NotImplementedError


def run():
    agent.model = Scripted()
    result = asyncio.run(Runner.run(agent, "go", hooks=hooks, run_config=RunConfig(tracing_disabled=True)))
    return str([item.output for item in result.new_items if item.type == "tool_call_output_item"])


(project.path / "a.txt").write_text("color")
(project.path / "b.txt").write_bytes(b"\\xff")
said = run()
assert "done" not in said, said
assert (project.path / "a.txt").read_text() == "color", "a tool that failed left something behind"
(project.path / "b.txt").unlink()
assert "done" in run()
assert (project.path / "a.txt").read_text() == "colour"
project.restore("before editor")
assert (project.path / "a.txt").read_text() == "color"
"""
CLAUDE = """
import asyncio

async def main():
    (matcher,) = options.hooks["PreToolUse"]
    (hook,) = matcher.hooks
    file = project.path / "a.txt"

    async def write(text):
        given = {"session_id": "s", "transcript_path": "", "cwd": str(project.path), "hook_event_name": "PreToolUse"}
        given |= {"tool_name": "Write", "tool_input": {"file_path": str(file)}, "tool_use_id": text}
        assert await hook(given, text, {"signal": None}) == {}
        file.write_text(text)

    file.write_text("zero")
    await write("one")
    await write("two")
    assert "is_error" not in await take_back.handler({}) and file.read_text() == "one"
    assert "is_error" not in await take_back.handler({}) and file.read_text() == "zero"
    assert (await take_back.handler({}))["is_error"]
    await project.undo()
    assert file.read_text() == "one"

asyncio.run(main())
"""

RECIPES = {"openai-agents.md": ("agents", OPENAI), "claude-agent-sdk.md": ("claude_agent_sdk", CLAUDE)}


def run(host: Host, place: Path, *words: str, **variables: str) -> str:
    """Runs a program; what it says."""
    environment = {**os.environ, **host.environment, "STASIS_BIN": host.binary, "STASIS_STORE": host.store, **variables}
    done = subprocess.run(
        [sys.executable, *words], cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown(example: str) -> list[str]:
    """What the guide of an example says that it prints."""
    guide = (GUIDES / GUIDE_OF[example]).read_text()
    _, _, said = guide.partition(f"$ python examples/{example}")
    return said.partition("```")[0].strip().splitlines()


def test_each_example_has_a_guide_that_shows_it_as_it_is() -> None:
    assert {one.name for one in EXAMPLES.glob("*.py")} == GUIDE_OF.keys()
    for name, guide in GUIDE_OF.items():
        text = (GUIDES / guide).read_text()
        assert FILE.findall(text) == [(name, (EXAMPLES / name).read_text())], f"{guide} shows another {name}"
        assert name in (EXAMPLES / "README.md").read_text()


def test_every_block_of_python_is_executed() -> None:
    for guide in [*GUIDE_OF.values(), *RECIPES]:
        text = (GUIDES / guide).read_text()
        assert text.count("```python") == len(FILE.findall(text)) + len(RECIPE.findall(text)), guide


def test_best_of_four(host: Host, tmp_path: Path) -> None:
    said = run(host, tmp_path, str(EXAMPLES / "best_of_four.py"))
    assert "promoted: race-" in said and "undone" in said


def test_a_session_sleeps(host: Host, tmp_path: Path) -> None:
    assert run(host, tmp_path, str(EXAMPLES / "sleep.py")).splitlines() == shown("sleep.py")


@pytest.mark.browser
def test_a_login_survives(host: Host, chromium: str, tmp_path: Path) -> None:
    said = run(host, tmp_path, str(EXAMPLES / "login.py"), CHROMIUM=chromium)
    assert said.splitlines() == shown("login.py")


@pytest.mark.docker
def test_a_container_is_rolled_back(engine: Engine, host: Host, tmp_path: Path) -> None:
    engine.run("run", "--detach", "--network=none", "--stop-timeout=1", "--name=agent", IMAGE, "sleep", "600")
    said = run(host, tmp_path, str(EXAMPLES / "rollback.py"), "agent", DOCKER_HOST=engine.address)
    assert "action 3 was bad: rolled back" in said


def test_a_graph_goes_back(host: Host, tmp_path: Path) -> None:
    needs("langgraph", "--integrations")
    said = run(host, tmp_path, str(EXAMPLES / "graph.py"))
    assert said.split() == ["#", "Outline", "a", "poor", "draft", "#", "Outline", "a", "good", "draft"]


@pytest.mark.parametrize("guide", RECIPES)
def test_a_recipe(host: Host, tmp_path: Path, guide: str) -> None:
    package, then = RECIPES[guide]
    needs(package, "--recipes")
    (tmp_path / "project").mkdir()
    ((_, code),) = RECIPE.findall((GUIDES / guide).read_text())
    run(host, tmp_path, "-c", code + then)


def needs(package: str, option: str) -> None:
    """Frameworks are there only where `check` was asked for them."""
    if importlib.util.find_spec(package) is None:
        if os.environ.get("STASIS_SDK_FRAMEWORKS") == option:
            missing(f"there is no `{package}`")
        pytest.skip(f"there is no `{package}`: `check {option}` installs it")
