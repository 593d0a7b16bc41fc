"""What is generated is what the generator makes of the documents in the tree, and these are what the binary says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent.parent


def test_the_generated_files_are_up_to_date() -> None:
    script = HERE / "scripts" / "generate_models.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_the_openapi_document_in_the_tree_is_the_one_of_the_binary(binary: str) -> None:
    printed = subprocess.run([binary, "serve", "--print-openapi"], capture_output=True, check=True).stdout
    assert json.loads(printed) == json.loads((HERE / "openapi.json").read_text()), (
        "write `stasis serve --print-openapi` to sdk/python/openapi.json and run scripts/generate_models.py"
    )


def test_the_version_is_in_one_place() -> None:
    import stasis

    assert f'__version__ = "{stasis.__version__}"' in (HERE / "src/stasis/_version.py").read_text()
    assert stasis.__version__ not in (HERE / "pyproject.toml").read_text()


def test_an_answer_of_a_newer_service_is_read() -> None:
    from stasis.models import ShownToken

    document = {"tenant": "acme", "scope": "all-of-it", "host": False, "actor": "token:1", "colour": {"red": 1}}
    token = ShownToken.from_json(document)
    assert (token.scope, token.roots, token.directory) == ("all-of-it", None, None)
    assert token.raw["colour"] == {"red": 1}


def test_an_answer_cannot_be_changed_and_hides_what_is_secret() -> None:
    from stasis.models import Acquired

    lease = Acquired.from_json({"token": "7.secret", "subject": "profile:acme/alice@131"})
    with pytest.raises(AttributeError):
        lease.epoch = 8  # type: ignore[misc]
    assert "secret" not in repr(lease)
    assert lease.token == "7.secret"
