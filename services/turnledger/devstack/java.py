"""Java and Maven: found, or installed where the system's package manager may be used, or asked for with the exact command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from turnledger.devstack.files import locked
from turnledger.errors import TurnledgerError

OLDEST_JAVA = 17
JAVA_PACKAGES = ("openjdk-21-jre-headless", "openjdk-17-jre-headless", "openjdk-25-jre-headless")
POM = Path(__file__).with_name("kafka.pom.xml")

Say = Callable[[str], None]


def cache_folder() -> Path:
    """The user's cache of turnledger."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnledger"


def java(say: Say) -> str:
    """The path of a Java of :data:`OLDEST_JAVA` or newer."""
    found = _find_java()
    if found is None:
        _install(say)
        found = _find_java()
    if found is None:
        raise TurnledgerError(f"no Java {OLDEST_JAVA} or newer was found; {_advice()}")
    return found


def kafka_jars(say: Say) -> Path:
    """The folder of the broker's jars, fetched once with Maven into the user's cache.

    Several processes may ask at once: one fetches, the others wait for it. A folder that stands is complete.
    """
    pom = POM.read_text(encoding="utf-8")
    version = re.search(r"kafka_2\.13</artifactId>\s*<version>([^<]+)", pom)
    assert version is not None
    cache = cache_folder()
    jars = cache / f"kafka-{version[1]}-{_short_hash(pom)}"
    if jars.is_dir():
        return jars
    with locked(cache / "kafka.lock"):
        if not jars.is_dir():
            say(f"fetching Apache Kafka {version[1]} into {jars} (once, about 45 MB)")
            _fetch(jars, _maven(say), java(say))
    return jars


def _fetch(jars: Path, maven: str, java_path: str) -> None:
    with tempfile.TemporaryDirectory(dir=jars.parent, prefix=".fetching-") as folder:
        target = Path(folder) / "jars"
        pom = Path(folder) / "pom.xml"
        shutil.copyfile(POM, pom)
        command = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        env = os.environ | {
            "JAVA_HOME": os.environ.get("JAVA_HOME") or str(Path(java_path).resolve().parents[1])
        }
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=env,
            check=False,
            cwd=folder,
        )
        if done.returncode != 0 or not list(target.glob("kafka_2.13-*.jar")):
            reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), "no reason given")
            raise TurnledgerError(
                f"Maven could not fetch Apache Kafka ({_plain(reason)}): check the network or Maven's settings.xml, then "
                f"run the command again; to see all of it: mvn -f {POM} dependency:resolve"
            )
        target.rename(jars)


def _find_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    for candidate in (home and f"{home}/bin/java", shutil.which("java")):
        if candidate and os.access(candidate, os.X_OK):
            said = subprocess.run([candidate, "-version"], capture_output=True, text=True, check=False).stderr
            version = re.search(r'version "(\d+)', said)
            if version and int(version[1]) >= OLDEST_JAVA:
                return candidate
    return None


def _maven(say: Say) -> str:
    found = shutil.which("mvn")
    if found is None:
        _install(say)
        found = shutil.which("mvn")
    if found is None:
        raise TurnledgerError(
            f"Maven (mvn) was not found and Apache Kafka is not in the cache yet; {_advice()}"
        )
    return found


def _install(say: Say) -> None:
    """Install what is missing, where we are root on Debian or Ubuntu; elsewhere do nothing."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    with locked(cache_folder() / "apt.lock"):
        missing = [] if _find_java() else [_java_package()]
        missing += [] if shutil.which("mvn") else ["maven"]
        if not missing:
            return  # somebody else installed it while we waited
        command = [
            "apt-get",
            "-o",
            "DPkg::Lock::Timeout=300",
            "install",
            "-y",
            "--no-install-recommends",
            *missing,
        ]
        say(f"Java {OLDEST_JAVA} or Maven is missing, and we are root: running {' '.join(command)}")
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for step in (["apt-get", "update"], command):
            done = subprocess.run(
                step, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, check=False
            )
            if done.returncode != 0 and step is command:
                raise TurnledgerError(
                    f"{' '.join(command)} failed ({_plain(done.stderr)[-300:]}); install Java and Maven by hand"
                )


def _java_package() -> str:
    subprocess.run(["apt-get", "update"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    for name in JAVA_PACKAGES:
        if subprocess.run(["apt-cache", "show", name], capture_output=True, check=False).returncode == 0:
            return name
    return "default-jre-headless"


def _advice() -> str:
    if sys.platform == "darwin":
        command = "brew install openjdk maven"
    elif shutil.which("dnf"):
        command = "sudo dnf install -y java-21-openjdk-headless maven"
    elif shutil.which("pacman"):
        command = "sudo pacman -S --noconfirm jre-openjdk-headless maven"
    elif shutil.which("apk"):
        command = "sudo apk add openjdk21-jre-headless maven"
    else:
        command = "sudo apt-get update && sudo apt-get install -y openjdk-17-jre-headless maven"
    return f"install them with: {command}"


def _plain(text: str) -> str:
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())


def _short_hash(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:12]
