"""A real Prometheus server for tests, and an exporter whose counters a test sets.

The server is the one on the PATH, else that of Debian's package, fetched once into the user's cache and unpacked there: nothing is installed.
"""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from turnledger.devstack.files import free_port, locked
from turnledger.devstack.java import cache_folder
from turnledger.devstack.process import wait_until
from turnledger.errors import TurnledgerError

SCRAPE = "250ms"


class NotHere(TurnledgerError):
    """There is no server, and none can be fetched: a machine without Debian's packages or without a way to them."""


def where() -> str:
    """One line for the header of a run: which server its tests will use."""
    found = _there()
    if found is not None:
        return str(found)
    if shutil.which("apt-get") and shutil.which("dpkg-deb"):
        return "not here yet: the first test that needs it fetches Debian's package (where that fails, they are skipped, and the summary says why)"
    return "NOT HERE, and no apt-get to fetch it with: tests that need it are skipped, and the summary names them"


def _there() -> Path | None:
    found = shutil.which("prometheus")
    if found is not None:
        return Path(found)
    unpacked = cache_folder() / "prometheus" / "usr" / "bin" / "prometheus"
    return unpacked if unpacked.exists() else None


def binary() -> Path:
    """The server's program; fetched where it is not here."""
    found = _there()
    if found is not None:
        return found
    with locked(cache_folder() / "prometheus.lock"):
        return _there() or _fetched()


def _fetched() -> Path:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise NotHere(
            "these tests need a real Prometheus server: install one and put `prometheus` on the PATH (there is no apt-get here to fetch it with)"
        )
    cache = cache_folder()
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetching-") as folder:
        fetch = ["apt-get", "-o", "APT::Sandbox::User=root", "download", "prometheus"]
        done = _run(fetch, folder)
        if done.returncode and os.geteuid() == 0:
            _run(["apt-get", "update"], folder)
            done = _run(fetch, folder)
        packages = list(Path(folder).glob("prometheus_*.deb"))
        if done.returncode or not packages:
            raise NotHere(
                f"these tests need a real Prometheus server, and `apt-get download prometheus` failed ({done.stderr.strip()[-200:]}): "
                "run `apt-get update`, or put a `prometheus` on the PATH"
            )
        unpacked = Path(folder) / "prometheus"
        done = _run(["dpkg-deb", "-x", str(packages[0]), str(unpacked)], folder)
        if done.returncode:
            raise TurnledgerError(f"{packages[0].name} cannot be unpacked: {done.stderr.strip()[-200:]}")
        unpacked.rename(cache / "prometheus")
    found = _there()
    assert found is not None
    return found


def _run(command: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


class Exporter:
    """Counters at ``/<job>``, as text. ``jobs[job]`` is a mapping from a series to its value."""

    def __init__(self) -> None:
        self.jobs: dict[str, Mapping[str, float]] = {}
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        exporter = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                series = exporter.jobs.get(self.path.strip("/"), {})
                body = "".join(f"{name} {value}\n" for name, value in sorted(series.items())).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(timeout=10)


@contextmanager
def scraping(exporter: Exporter, jobs: list[str], folder: Path) -> Iterator[str]:
    """The address of a server that scrapes these jobs of the exporter, four times a second; ended at the end."""
    config = folder / "prometheus.yml"
    lines = ["global:", f"  scrape_interval: {SCRAPE}", f"  scrape_timeout: {SCRAPE}", "scrape_configs:"]
    for job in jobs:
        lines += [
            f"- job_name: {job}",
            f"  metrics_path: /{job}",
            "  static_configs:",
            f"  - targets: ['{exporter.address}']",
        ]
    config.write_text("\n".join(lines) + "\n")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log = folder / "prometheus.log"
    command = [
        str(binary()),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        ready = wait_until(lambda: process.poll() is not None or _ready(url), seconds=60)
        if not ready or process.poll() is not None:
            raise TurnledgerError(f"Prometheus did not start: {log.read_text(errors='replace')[-500:]}")
        yield url
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=10)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
