"""Runs on browser profiles, with Debian's Chromium driven by Playwright, on two hosts that share one store."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.async_api import async_playwright
from playwright.sync_api import BrowserContext, sync_playwright

from conftest import Host, Hosts, missing
from stasis import AsyncLocal, AsyncProfile, Profile, ProfileRun, errors

FLAGS = ["--no-sandbox"] if os.getuid() == 0 else []


class Site(BaseHTTPRequestHandler):
    """Signs in whoever comes for the first time, and knows them afterwards."""

    def do_GET(self) -> None:
        known = "session=" in (self.headers.get("cookie") or "")
        body = b"known" if known else b"signed in"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        if not known:
            self.send_header("set-cookie", "session=ada; Max-Age=86400; Path=/")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name is the library's
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()


@pytest.fixture(params=["directory", "s3"])
def shared(request: pytest.FixtureRequest, tmp_path: Path, binary: str, store: str) -> Hosts:
    """Makes hosts that share a store: a directory, and S3 where a server is there (`scripts/with-s3`)."""
    address = store
    if request.param == "s3":
        address = s3_store()

    def made(name: str) -> Host:
        home = tmp_path / name
        home.mkdir(exist_ok=True)
        return Host(name, home, address, binary)

    return made


def s3_store() -> str:
    """A place of its own in the bucket of the test server."""
    given = os.environ.get("STASIS_TEST_S3")
    if given is None:
        missing("no S3 server: run under scripts/with-s3")
    place, settings = given.split("?", 1)
    return f"{place}/sdk-{secrets.token_hex(4)}?{settings}"


def visit(directory: Path, chromium: str, site: str) -> str:
    """What the site says to a browser on that directory."""
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(str(directory), executable_path=chromium, args=FLAGS)
        try:
            return text_of(context, site)
        finally:
            context.close()


def text_of(context: BrowserContext, site: str) -> str:
    page = context.new_page()
    page.goto(site)
    return page.inner_text("body")


@pytest.mark.browser
def test_cookies_are_carried_from_one_host_to_another(shared: Hosts, chromium: str, site: str) -> None:
    with ProfileRun("acme/alice", local=shared("one").local, browser=chromium) as run:
        assert (run.start.outcome, run.start.is_fresh) == ("no_snapshot", True)
        assert visit(run.dir, chromium, site) == "signed in"
        assert not run.lock_lost
        run.check()
    assert run.result.is_saved and not run.result.snapshot_failed
    run.result.raise_for_failure()

    with ProfileRun("acme/alice", local=shared("two").local, browser=chromium) as again:
        assert (again.start.outcome, again.start.is_restored) == ("success", True)
        assert again.dir != run.dir
        assert visit(again.dir, chromium, site) == "known"
    assert again.result.ran.load.sha256 == run.result.sha256


@pytest.mark.browser
async def test_a_run_is_saved_although_its_block_raised(hosts: Hosts, chromium: str, site: str) -> None:
    def profile(host: Host) -> AsyncProfile:
        local = AsyncLocal(binary=host.binary, store=host.store, environment=host.environment)
        return AsyncProfile("acme/alice", local=local)

    run = profile(hosts("one")).run(browser=chromium)
    with pytest.raises(RuntimeError, match="the agent failed"):
        async with run, async_playwright() as playwright:
            context = await playwright.chromium.launch_persistent_context(
                str(run.dir), executable_path=chromium, args=FLAGS
            )
            page = await context.new_page()
            await page.goto(site)
            # The browser is left open: the end of the run closes it as its user would.
            raise RuntimeError("the agent failed")
    assert run.result.is_saved

    other = profile(hosts("two"))
    state = await other.storage_state()
    assert [one["name"] for one in state["cookies"]] == ["session"]


@pytest.mark.browser
def test_a_storage_state_goes_in_and_comes_out(host: Host, chromium: str, site: str) -> None:
    cookie = {
        "name": "session",
        "value": "from-elsewhere",
        "domain": "127.0.0.1",
        "path": "/",
        "expires": time.time() + 86_400,
        "httpOnly": True,
        "secure": False,
        "sameSite": "Lax",
    }
    profile = Profile("acme/bob", local=host.local)
    profile.import_storage_state({"cookies": [cookie], "origins": []}, browser=chromium, browser_flags=tuple(FLAGS))
    state = profile.storage_state()
    assert [(one["name"], one["value"]) for one in state["cookies"]] == [("session", "from-elsewhere")]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        context = browser.new_context(storage_state=state)  # type: ignore[arg-type]
        assert text_of(context, site) == "known"
        browser.close()


def looks_like_a_profile(directory: Path, text: str = "{}") -> None:
    """What Chromium makes first: enough to be taken for one of its directories."""
    (directory / "Default").mkdir(exist_ok=True)
    (directory / "Local State").write_text(text)
    (directory / "Default" / "Preferences").write_text(text)


def test_a_profile_that_another_run_holds_is_refused_or_waited_for(hosts: Hosts) -> None:
    one, two = hosts("one"), hosts("two")
    with ProfileRun("acme/alice", local=one.local, chrome_major=131, run_id="r-1", host="east-1") as run:
        looks_like_a_profile(run.dir)
        with pytest.raises(errors.LeaseHeld) as caught:
            ProfileRun("acme/alice", local=two.local, chrome_major=131).__enter__()
        holder = caught.value.holder
        assert holder is not None and (holder.holder_run_id, holder.holder_host) == ("r-1", "east-1")
        # Whoever only reads need not wait.
        with ProfileRun("acme/alice", local=two.local, chrome_major=131, save=False) as reader:
            assert reader.start.outcome == "no_snapshot"
        assert reader.result.save_outcome == "discarded" and reader.result.failure() is None

        waited: list[str] = []

        def wait() -> None:
            with ProfileRun("acme/alice", local=two.local, chrome_major=131, wait=60) as next_run:
                waited.append(next_run.start.outcome)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.5)
        assert waited == []
    thread.join(60)
    assert waited == ["success"]


def test_a_lease_that_is_lost_is_said_at_once_and_nothing_is_saved(hosts: Hosts) -> None:
    one, two = hosts("one"), hosts("two")
    one.run("tenant", "policy", "set", "acme", "lease_ttl_s=30", "renew_s=1")
    told = threading.Event()
    run = ProfileRun("acme/alice", local=one.local, chrome_major=131, on_lock_lost=told.set)
    with run:
        looks_like_a_profile(run.dir)
        two.run("profile", "force-unlock", "acme/alice@131", "--reason", "the host is gone", "--confirm")
        assert told.wait(90), "nobody said that the lease is lost"
        assert run.lock_lost
        with pytest.raises(errors.LockLost):
            run.check()
    assert run.result.lock_lost and not run.result.is_saved
    with pytest.raises(errors.LockLost):
        run.result.raise_for_failure()


def test_a_run_that_is_at_its_end_is_saved_and_says_that_it_ended(host: Host) -> None:
    run = ProfileRun("acme/alice", local=host.local, chrome_major=131, max_time=1)
    with run:
        looks_like_a_profile(run.dir)
        run.check()
        until = time.monotonic() + 30
        with pytest.raises(errors.Cancelled):
            while time.monotonic() < until:
                run.check()
                time.sleep(0.1)
        assert not run.lock_lost
    assert run.result.is_saved and "closed_after_max_time" in run.result.warnings


def test_a_damaged_snapshot_is_never_called_restored(hosts: Hosts, store: str) -> None:
    one, two = hosts("one"), hosts("two")
    with ProfileRun("acme/alice", local=one.local, chrome_major=131) as run:
        looks_like_a_profile(run.dir)
    (archive,) = Path(store).rglob("*.tar.zst")
    archive.write_bytes(b"garbage")

    with ProfileRun("acme/alice", local=two.local, chrome_major=131) as fresh:
        assert (fresh.start.outcome, fresh.start.is_fresh) == ("fresh_fallback", True)
        assert fresh.start.detail and "digest" in fresh.start.detail
        looks_like_a_profile(fresh.dir)
    assert fresh.result.start.reason == "sha_mismatch"
    # What began fresh cannot replace the snapshot that it did not load.
    assert fresh.result.diverged and not fresh.result.is_saved

    with pytest.raises(errors.IntegrityFailed):
        ProfileRun("acme/alice", local=hosts("three").local, chrome_major=131, on_failure="refuse").__enter__()


def test_a_profile_that_is_too_large_is_said_so(host: Host) -> None:
    host.run("tenant", "policy", "set", "acme", "max_profile_bytes=1000")
    run = ProfileRun("acme/alice", local=host.local, chrome_major=131, strict=True)
    with pytest.raises(errors.LimitExceeded, match="too_large"), run:
        looks_like_a_profile(run.dir)
        (run.dir / "Default" / "History").write_bytes(secrets.token_bytes(5000))
    assert run.result.profile_too_large and run.result.snapshot_failed


def test_what_a_run_without_a_save_does_is_thrown_away(host: Host) -> None:
    with ProfileRun("acme/alice", local=host.local, chrome_major=131) as first:
        looks_like_a_profile(first.dir, '{"logged_in": true}')
    with ProfileRun("acme/alice", local=host.local, chrome_major=131, save=False) as second:
        looks_like_a_profile(second.dir, '{"logged_in": false}')
    assert not second.result.is_saved and second.result.failure() is None
    with ProfileRun("acme/alice", local=host.local, chrome_major=131) as third:
        assert (third.dir / "Local State").read_text() == '{"logged_in": true}'


def test_a_run_whose_store_went_away_ends_and_says_that_it_was_not_saved(
    hosts: Hosts, binary: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = ProfileRun("acme/alice", local=hosts("one").local, chrome_major=131)
    with run:
        looks_like_a_profile(run.dir)
        # Nobody may write where the archive would go.
        blocked = Path(hosts("one").store) / "snapshots" / "acme" / "alice" / "131"
        blocked.rename(blocked.with_name("away"))
        blocked.write_text("no directory")
    assert run.result.snapshot_failed and not run.result.is_saved and run.result.save_error
    assert "was not saved" in caplog.text
    failure = run.result.failure()
    assert failure is not None and failure.hint


def test_a_program_that_dies_gives_its_profile_back(hosts: Hosts, tmp_path: Path) -> None:
    import subprocess
    import sys

    host = hosts("one")
    program = (
        "import os, stasis\n"
        f"local = stasis.Local(binary={host.binary!r}, store={host.store!r}, environment={host.environment!r})\n"
        "run = stasis.ProfileRun('acme/alice', local=local, chrome_major=131).__enter__()\n"
        "(run.dir / 'Default').mkdir()\n"
        "(run.dir / 'Local State').write_text('{}')\n"
        "(run.dir / 'Default' / 'Preferences').write_text('{}')\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    with ProfileRun("acme/alice", local=hosts("two").local, chrome_major=131, wait=60) as run:
        assert run.start.outcome == "success"


def test_a_run_has_a_directory_only_inside_its_block(host: Host) -> None:
    run = ProfileRun("acme/alice", local=host.local, chrome_major=131)
    for look in (lambda: run.dir, lambda: run.start, lambda: run.result):
        with pytest.raises(RuntimeError):
            _read(look)


def _read(look: Callable[[], object]) -> object:
    return look()
