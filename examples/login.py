"""A browser agent whose login survives a change of host.

Two hosts, which are two state directories here, share one store. The agent signs in on the first one and is known on the second.
No model is asked: the agent is a script that drives Chromium with Playwright, on a page that this program serves on loopback.
"""

import os
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import sync_playwright

from stasis import Local, ProfileRun

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")


class Site(BaseHTTPRequestHandler):
    """Signs in whoever comes for the first time, and knows them afterwards."""

    def do_GET(self):
        known = "session=" in (self.headers.get("cookie") or "")
        self.send_response(200)
        self.send_header("content-type", "text/html")
        if not known:
            self.send_header("set-cookie", "session=alice; Max-Age=86400; Path=/")
        self.end_headers()
        self.wfile.write(b"welcome back" if known else b"signed in")

    def log_message(self, *arguments):
        pass


def visit(directory: Path, site: str) -> str:
    """What the site says to a browser with this profile."""
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(directory), executable_path=CHROMIUM, chromium_sandbox=os.getuid() != 0
        )
        page = context.new_page()
        page.goto(site)
        text = page.inner_text("body")
        context.close()
        return text


def agent(host: str, place: str, site: str) -> str:
    """One run of the agent on a host: all that the hosts share is the store."""
    state = str(Path(place, host))
    local = Local(store=Path(place, "store"), environment={"HOME": state, "XDG_STATE_HOME": state})
    with ProfileRun("acme/alice", browser=CHROMIUM, local=local) as run:
        text = visit(run.dir, site)
    run.result.raise_for_failure()
    print(f"{host}: began with {run.start.outcome}; the site says: {text}")
    return text


server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
threading.Thread(target=server.serve_forever, daemon=True).start()
site = f"http://127.0.0.1:{server.server_address[1]}/"

with tempfile.TemporaryDirectory() as place:
    Path(place, "store").mkdir()
    assert agent("one", place, site) == "signed in"
    assert agent("two", place, site) == "welcome back"
server.shutdown()
