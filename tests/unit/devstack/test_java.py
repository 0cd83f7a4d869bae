"""Java, Maven and the cache of jars. Programs are small scripts on a PATH of the test's own."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from turnledger.devstack import java as subject
from turnledger.errors import TurnledgerError


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH that holds what the test puts there, a cache of its own, and nobody is root."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "mkdir", "touch", "sleep", "echo"):
        (folder / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return folder


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def put_java(folder: Path, version: str = "21.0.2") -> None:
    put(folder, "java", f"echo 'openjdk version \"{version}\"' >&2")


MAVEN = """
echo called >> "$CALLS"
for argument in "$@"; do case $argument in -DoutputDirectory=*) target=${argument#-DoutputDirectory=};; esac; done
sleep 0.3
mkdir "$target"
touch "$target/kafka_2.13-4.4.0.jar"
"""


def silence(_: str) -> None:
    pass


def test_without_java_the_sentence_holds_the_exact_command(programs: Path) -> None:
    with pytest.raises(TurnledgerError) as raised:
        subject.java(silence)
    assert "no Java 17 or newer was found" in str(raised.value)
    assert "apt-get install -y openjdk-17-jre-headless maven" in str(raised.value)


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_392"])
def test_a_java_that_is_too_old_is_none(programs: Path, version: str) -> None:
    put_java(programs, version)
    with pytest.raises(TurnledgerError, match="no Java 17 or newer"):
        subject.java(silence)


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2", "25"])
def test_java_17_and_newer_will_do(programs: Path, version: str) -> None:
    put_java(programs, version)
    assert subject.java(silence) == str(programs / "java")


def test_without_maven_and_jars_the_sentence_says_so(programs: Path) -> None:
    put_java(programs)
    with pytest.raises(TurnledgerError, match=r"Maven \(mvn\) was not found"):
        subject.kafka_jars(silence)


def test_root_on_debian_installs_what_is_missing_and_says_so(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`apt-get update` goes first; the install puts a Java onto the PATH here as there."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    put(programs, "apt-cache", '[ "$2" = openjdk-17-jre-headless ]')
    put(programs, "mvn", MAVEN)
    put(
        programs,
        "apt-get",
        f"""echo "$@" >> "$CALLS"
case "$*" in *install*) echo '#!/bin/sh
echo "openjdk version \\"17.0.1\\"" >&2' > {programs}/java; /bin/chmod 755 {programs}/java;; esac""",
    )
    said: list[str] = []
    assert subject.java(said.append) == str(programs / "java")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0] == "update"
    assert calls[-1].endswith("install -y --no-install-recommends openjdk-17-jre-headless")
    assert len(said) == 1
    assert "openjdk-17-jre-headless" in said[0]


def test_a_failed_fetch_leaves_no_folder_and_names_the_reason(programs: Path, tmp_path: Path) -> None:
    put_java(programs)
    put(programs, "mvn", "echo '[ERROR] Unknown host'; exit 1")
    with pytest.raises(TurnledgerError, match="Unknown host"):
        subject.kafka_jars(silence)
    assert [entry.name for entry in (tmp_path / "cache" / "turnledger").iterdir()] == ["kafka.lock"]


def ask(answers: multiprocessing.Queue[str]) -> None:
    answers.put(str(subject.kafka_jars(silence)))


def test_two_processes_at_once_fetch_once(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    put_java(programs)
    put(programs, "mvn", MAVEN)
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[str] = context.Queue()
    askers = [context.Process(target=ask, args=(answers,)) for _ in range(3)]
    for asker in askers:
        asker.start()
    folders = {answers.get(timeout=30) for _ in askers}
    for asker in askers:
        asker.join(timeout=30)
    assert len(folders) == 1
    assert (Path(folders.pop()) / "kafka_2.13-4.4.0.jar").exists()
    assert (tmp_path / "calls").read_text().splitlines() == ["called"]
