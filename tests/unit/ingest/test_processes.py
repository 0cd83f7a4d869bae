"""The parent of several workers: command lines, one page of metrics, who is started again and who ends all. The processes are small scripts."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from turnledger.errors import TurnledgerError
from turnledger.ingest.metrics import Metrics, ProcessMetrics
from turnledger.ingest.processes import Child, ParentServer, Processes, command
from turnledger.ingest.settings import Flags, WorkerSettings
from turnledger.ingest.tether import Tether


@pytest.fixture(autouse=True)
def _no_settings_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TURNLEDGER_")]:
        monkeypatch.delenv(name)


def arguments(settings: WorkerSettings, flags: Flags, number: int) -> set[str]:
    line = command(settings, flags)(number, 9)
    assert line[:5] == [sys.executable, "-P", "-m", "turnledger", "worker"]
    return set(line[5:])


def test_a_static_member_id_becomes_one_a_process() -> None:
    settings = WorkerSettings(instance_id="vm-7")
    assert "--instance-id=vm-7-1" in arguments(settings, Flags(), 1)
    assert "--instance-id=vm-7-2" in arguments(settings, Flags(), 2)


def test_without_a_static_member_id_no_process_has_one() -> None:
    assert arguments(WorkerSettings(topic="t", group_id="g"), Flags(), 3) == {
        "--processes=1",
        "--tether=3:9",
        "--topic=t",
        "--group=g",
        "--health-host=127.0.0.1",
        "--health-port=0",
    }


def test_every_process_gets_the_flags_of_the_command() -> None:
    for number in (1, 2):
        told = arguments(WorkerSettings(), Flags(True, True, True), number)
        assert {"--take-over", "--accept-loss", "--resume-stopped"} <= told


@pytest.mark.parametrize("count", [0, -1])
def test_fewer_than_one_process_is_an_error(count: int) -> None:
    with pytest.raises(TurnledgerError, match="give a number from 1 to 64"):
        WorkerSettings(processes=count).process_count()


def test_sixty_four_processes_are_the_most() -> None:
    assert WorkerSettings(processes=64).process_count() == 64
    with pytest.raises(TurnledgerError, match=r"--processes 65 .* is above 64"):
        WorkerSettings(processes=65).process_count()


def test_a_setting_that_cannot_be_read_is_a_sentence_without_its_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TURNLEDGER_PROCESSES", "hunter2")
    with pytest.raises(TurnledgerError, match="TURNLEDGER_PROCESSES cannot be used") as caught:
        WorkerSettings()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("given", ["", "2", "2:x", "2:9999", "1:2:3"])
def test_a_tether_that_no_parent_holds_is_an_error(given: str) -> None:
    with pytest.raises(TurnledgerError, match="is not the tether of a running parent"):
        Tether.parse(given)


def page_of(rounds: int, records: dict[str, int]) -> str:
    metrics = Metrics()
    metrics.rounds.inc(rounds)
    metrics.round_records.observe(7)
    for partition, count in records.items():
        metrics.records.labels(partition, 'odd "reason"\n').inc(count)
    return generate_latest(metrics.registry).decode()


def parent(*pages: str) -> ParentServer:
    children = [Child(number, page=page) for number, page in enumerate(pages, 1)]
    return ParentServer(children, ProcessMetrics(), "127.0.0.1", 0)


def test_the_page_of_the_parent_has_each_family_once_and_the_process_in_each_sample() -> None:
    server = parent(page_of(3, {"0": 5}), page_of(4, {"1": 6, "2": 8}))
    status, _, body = server.answer("GET /metrics HTTP/1.1")
    assert status == "200 OK"
    text = body.decode()
    kinds = [line for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(kinds) == len(set(kinds)) and len({line.split()[2] for line in kinds}) == len(kinds)
    assert [line for line in text.splitlines() if line.startswith("turnledger_ingest_rounds_total")] == [
        'turnledger_ingest_rounds_total{process="1"} 3.0',
        'turnledger_ingest_rounds_total{process="2"} 4.0',
    ]
    found = {
        (sample.labels["process"], sample.labels["partition"], sample.labels["outcome"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "turnledger_ingest_records_total"
    }
    odd = 'odd "reason"\n'
    assert found == {("1", "0", odd): 5.0, ("2", "1", odd): 6.0, ("2", "2", odd): 8.0}
    assert 'turnledger_ingest_round_records_bucket{le="10.0",process="2"} 1.0' in text
    assert text.count("# TYPE turnledger_ingest_round_records histogram") == 1
    assert "# TYPE turnledger_ingest_rounds_total counter" in text


def test_the_samples_of_a_family_stand_together() -> None:
    _, _, body = parent(page_of(1, {"0": 1}), page_of(1, {"1": 1})).answer("GET /metrics HTTP/1.1")
    order: list[str] = []
    for line in body.decode().splitlines():
        name = line.split()[2] if line.startswith("# TYPE ") else ""
        if name:
            order.append(name)
        elif not line.startswith("#"):
            assert line.startswith(order[-1]), f"{line} stands under {order[-1]}"


def test_health_is_green_only_when_all_processes_are_and_names_the_first_red_one() -> None:
    server = parent("", "", "")
    assert server.answer("GET /healthz HTTP/1.1")[0] == "200 OK"
    server.children[1].reasons = ["the database fails for 9 s: gone", "another"]
    server.children[2].reasons = ["it is starting"]
    assert server.reasons() == [
        "process 2: the database fails for 9 s: gone",
        "process 2: another",
        "process 3: it is starting",
    ]
    assert server.answer("GET /healthz HTTP/1.1")[0] == "503 Service Unavailable"


def test_a_process_that_has_no_port_is_red() -> None:
    child = Child(1, down="it was ended by SIGKILL")
    asyncio.run(child.look())
    assert child.reasons == ["it was ended by SIGKILL"]


SLEEPS = "import time; time.sleep(60)"
REPORTS = "import os, sys, time; os.write(int(sys.argv[2]), b'1\\n'); open(sys.argv[3] + '/' + sys.argv[1], 'a').write('x'); "
"""A child that says it has a port and leaves a mark a life; then what it does."""


def processes(folder: Path, *programs: str, end_seconds: float = 10) -> Processes:
    """A parent of one small script a number."""

    def of(number: int, descriptor: int) -> list[str]:
        return [sys.executable, "-c", programs[number - 1], str(number), str(descriptor), str(folder)]

    return Processes(
        len(programs),
        of,
        environment=dict(os.environ),
        health_host="127.0.0.1",
        health_port=0,
        backoff=(0.05, 0.1),
        end_seconds=end_seconds,
    )


def lives(folder: Path, number: int) -> int:
    mark = folder / str(number)
    return len(mark.read_text()) if mark.exists() else 0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - files and processes tell nobody
            await asyncio.sleep(0.02)


TERMINABLE = REPORTS + "import signal; signal.signal(signal.SIGTERM, lambda *a: sys.exit(0)); time.sleep(60)"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_processes_and_the_status_is_zero_when_all_ended_well(
    tmp_path: Path, number: signal.Signals
) -> None:
    async def main() -> int:
        running = processes(tmp_path, TERMINABLE, TERMINABLE)
        task = asyncio.create_task(running.run())
        await until(lambda: lives(tmp_path, 1) == lives(tmp_path, 2) == 1)
        await asyncio.sleep(0.2)
        os.kill(os.getpid(), number)
        return await task

    assert asyncio.run(main()) == 0


def test_a_process_that_was_killed_is_started_again_and_the_other_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        running = processes(tmp_path, TERMINABLE, TERMINABLE)
        task = asyncio.create_task(running.run())
        await until(lambda: lives(tmp_path, 1) == lives(tmp_path, 2) == 1)
        running.children[0].signal(signal.SIGKILL)
        await until(lambda: lives(tmp_path, 1) == 2)
        assert lives(tmp_path, 2) == 1
        page = generate_latest(running.metrics.registry).decode()
        assert 'turnledger_ingest_process_restarts_total{process="1"} 1.0' in page
        assert 'turnledger_ingest_process_restarts_total{process="2"} 0.0' in page
        os.kill(os.getpid(), signal.SIGTERM)
        await task

    asyncio.run(main())


@pytest.mark.parametrize("status", [0, 1])
def test_a_process_that_ends_by_itself_without_a_sentence_is_started_again(
    tmp_path: Path, status: int
) -> None:
    async def main() -> None:
        running = processes(tmp_path, REPORTS + f"sys.exit({status})")
        task = asyncio.create_task(running.run())
        await until(lambda: lives(tmp_path, 1) >= 3)
        os.kill(os.getpid(), signal.SIGTERM)
        await task

    asyncio.run(main())


def test_a_process_that_ends_with_a_sentence_ends_all_with_its_status(tmp_path: Path) -> None:
    async def main() -> int:
        running = processes(tmp_path, TERMINABLE, REPORTS + "time.sleep(0.3); sys.exit(2)")
        status = await running.run()
        assert all(child.process is None for child in running.children)
        return status

    assert asyncio.run(main()) == 2
    assert lives(tmp_path, 2) == 1


def test_a_process_that_does_not_end_is_killed_and_the_status_is_one(tmp_path: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + REPORTS + "time.sleep(60)"

    async def main() -> int:
        running = processes(tmp_path, TERMINABLE, stubborn, end_seconds=0.5)
        task = asyncio.create_task(running.run())
        await until(lambda: lives(tmp_path, 1) == lives(tmp_path, 2) == 1)
        os.kill(os.getpid(), signal.SIGTERM)
        return await task

    assert asyncio.run(main()) == 1


def test_a_process_that_was_only_starting_when_the_end_came_ended_well(tmp_path: Path) -> None:
    async def main() -> int:
        running = processes(tmp_path, SLEEPS)
        task = asyncio.create_task(running.run())
        await until(lambda: running.children[0].process is not None)
        os.kill(os.getpid(), signal.SIGTERM)
        return await task

    assert asyncio.run(main()) == 0


def test_a_process_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    async def main() -> int:
        running = Processes(
            1,
            lambda number, descriptor: [str(tmp_path / "nothing")],
            environment={},
            health_host="127.0.0.1",
            health_port=0,
            backoff=(0.01, 0.01),
        )
        task = asyncio.create_task(running.run())

        def restarted() -> bool:
            told = re.search(
                r'restarts_total\{process="1"\} (\S+)', generate_latest(running.metrics.registry).decode()
            )
            return told is not None and float(told[1]) >= 2

        await until(restarted)
        assert running.children[0].down == "it could not be started (No such file or directory)"
        os.kill(os.getpid(), signal.SIGTERM)
        return await task

    asyncio.run(main())


def test_a_tethered_process_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    program = (
        "import sys, time; from turnledger.ingest.tether import Tether; "
        "tether = Tether.parse(sys.argv[1] + ':' + sys.argv[2]); tether.hold(); tether.report(1); time.sleep(60)"
    )

    async def main() -> int:
        running = processes(tmp_path, program)
        keeper = asyncio.create_task(running._keep(running.children[0]))
        await until(lambda: running.children[0].port == 1)
        process = running.children[0].process
        assert process is not None
        keeper.cancel()  # our side of the tether closes, and nobody sends a signal
        async with asyncio.timeout(20):
            return await process.wait()

    assert asyncio.run(main()) == -signal.SIGTERM


def test_the_parent_loads_neither_faust_nor_a_driver() -> None:
    program = (
        "import sys, turnledger.cli.worker, turnledger.cli.addresses, turnledger.ingest.processes; "
        "print(sorted({'faust', 'aiokafka', 'psycopg'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
