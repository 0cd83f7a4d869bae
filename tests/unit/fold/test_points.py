"""Point events and merged processes (contract 11)."""

from __future__ import annotations

from tests.unit.fold.events import START, Story, checks


def test_a_request_is_one_row_with_its_position_and_the_ledgers_columns() -> None:
    story = Story()
    event = story(
        "net.requested",
        turn="t",
        domain="a.example",
        port=443.0,
        decision="denied",
        bytes_sent=10,
        query="q=1",
        extra=1,
    )
    event.event_id = "0123456789ab"
    event.origin = {"process": "curl", "pid": "17"}
    (row,) = story.fold().points["net_events"]
    assert row == {
        "producer": "harness",
        "epoch": 0,
        "stream": "ledger",
        "seq": 0,
        "receipt_key": None,
        "event_id": "0123456789ab",
        "occurred_at": START,
        "trace_id": None,
        "turn_id": "t",
        "turn_index": None,
        "model_call_id": None,
        "tool_call_id": None,
        "kind": "live",
        "process_name": "curl",
        "pid": "17",
        "domain": "a.example",
        "port": 443,
        "decision": "denied",
        "method": None,
        "path": None,
        "query": "q=1",
        "status_code": None,
        "bytes_sent": 10,
        "bytes_received": None,
        "duration_ms": None,
        "matched_rule": None,
        "conn_type": None,
        "request_headers": None,
        "response_headers": None,
        "policy_mode": None,
        "policy_action": None,
        "policy_rule": None,
        "policy_reason": None,
    }


def test_what_cannot_be_read_is_null_and_a_finding() -> None:
    story = Story()
    story("fs.changed", action="created", path="/a", size="[REDACTED]")
    fold = story.fold()
    assert fold.points["fs_events"][0]["size"] is None
    assert checks(fold) == ["wrong_type_in_payload"]
    assert fold.findings[0]["row"]["field"] == "size"


def test_an_audited_process_has_its_own_pid() -> None:
    story = Story()
    event = story("process.audited", pid=42, ppid=1, uid=0, exe="/bin/ls", argv=["ls", "-l"])
    event.origin = {"pid": "7"}
    (row,) = story.fold().points["audit_events"]
    assert (row["pid"], row["ppid"], row["argv"]) == ("42", 1, ["ls", "-l"])


def test_start_and_exit_are_one_row_and_ids_are_compared_as_text() -> None:
    story = Story()
    story("process.started", exec_id=1, command="make", source="tool")
    story("process.exited", exec_id="1", exit_code=-9, duration_ms=1000, stream="bus")
    (row,) = story.fold().points["exec_events"]
    assert (row["exec_id"], row["command"], row["exit_code"], row["duration_ms"]) == ("1", "make", -9, 1000)
    assert (row["stream"], row["started_at"], row["exited_at"]) == ("ledger", START, START + 1_000_000)


def test_a_second_start_opens_a_new_row_and_the_exit_is_its_own() -> None:
    story = Story()
    story("process.started", exec_id="1", command="a")
    story("process.started", exec_id="1", command="b")
    story("process.exited", exec_id="1", exit_code=0)
    story("process.exited", exec_id="1", exit_code=3)
    rows = story.fold().points["exec_events"]
    assert [(row["command"], row["exit_code"]) for row in rows] == [("a", None), ("b", 0), (None, 3)]
    assert rows[2]["started_at"] is None


def test_processes_without_an_id_are_rows_of_their_own() -> None:
    story = Story()
    story("process.started", command="a")
    story("process.exited", exit_code=0)
    assert len(story.fold().points["exec_events"]) == 2


def test_a_decision_and_an_ask_have_the_columns_of_the_rule_that_led_to_them() -> None:
    story = Story()
    shared = {"for_event_id": "e", "rule_id": 7, "rule_action": "ask", "detection_level": "high"}
    snapshot = {"rule": {"name": "r"}, "event": {"domain": "a.example"}}
    steps = {"stage": "rule", "previous": "allow", "requested": "ask", "effective": "block"}
    story("security.rule_matched", **shared, **snapshot)
    story("security.decided", **shared, **snapshot, **steps)
    story("security.asked", **shared, **snapshot, **steps, ask_id="0123456789ab", status="pending")
    points = story.fold().points
    for table in ("security_rule_events", "security_decisions", "security_asks"):
        (row,) = points[table]
        assert {name: row[name] for name in (*shared, *snapshot)} == {**shared, **snapshot, "rule_id": "7"}
    for table in ("security_decisions", "security_asks"):
        (row,) = points[table]
        assert {name: row[name] for name in steps} == steps
    assert (points["security_asks"][0]["ask_id"], points["security_asks"][0]["status"]) == (
        "0123456789ab",
        "pending",
    )


def test_requests_and_questions_have_their_headers_and_policy() -> None:
    story = Story()
    policy = {
        "policy_mode": "enforce",
        "policy_action": "block",
        "policy_rule": "no-egress",
        "policy_reason": "listed",
    }
    headers = {"request_headers": {"accept": "*/*"}, "response_headers": "server: x"}
    story("net.requested", domain="a.example", port=443, decision="denied", **policy, **headers)
    story("dns.queried", qname="a.example", qtype="A", qclass=1, rcode=3, decision="denied", **policy)
    points = story.fold().points
    (request,), (question,) = points["net_events"], points["dns_events"]
    assert {name: request[name] for name in (*policy, *headers)} == {**policy, **headers}
    assert {name: question[name] for name in policy} == policy
    assert (question["qclass"], question["rcode"]) == ("1", "3")


def test_a_word_that_its_list_does_not_have_is_null_and_a_finding() -> None:
    story = Story()
    story("net.requested", domain="a.example", port=443, decision="perhaps")
    story("fs.changed", action="renamed", path="/a")
    story("credential.used", source="env", reference="r", outcome="lost")
    fold = story.fold()
    assert [
        fold.points[table][0][name]
        for table, name in (
            ("net_events", "decision"),
            ("fs_events", "action"),
            ("credential_events", "outcome"),
        )
    ] == [None, None, None]
    assert [found["row"]["field"] for found in fold.findings] == ["decision", "action", "outcome"]
