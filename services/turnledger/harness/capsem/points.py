"""Owns the tables of a Capsem session.db whose rows are one fact each: network, names, files, processes, credentials, security."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from turnledger.harness.facts import count, identifier, known, parsed, put_text, put_value, text

Row = Mapping[str, Any]
Told = tuple[str, dict[str, Any]]
Tell = Callable[[Row], Iterator[Told]]


def _text_fields(payload: dict[str, Any], row: Row, *names: str) -> dict[str, Any]:
    for name in names:
        put_text(payload, name, text(row.get(name)))
    return payload


def _whole(value: Any) -> int | None:
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def _net(row: Row) -> Iterator[Told]:
    payload = known(
        {
            "domain": text(row.get("domain")),
            "port": count(row.get("port")),
            "decision": text(row.get("decision")),
            "status_code": count(row.get("status_code")),
            "bytes_sent": count(row.get("bytes_sent")),
            "bytes_received": count(row.get("bytes_received")),
            "duration_ms": count(row.get("duration_ms")),
        }
    )
    names = (
        "method",
        "path",
        "query",
        "matched_rule",
        "request_headers",
        "response_headers",
        "conn_type",
        "process_name",
        "policy_mode",
        "policy_action",
        "policy_rule",
        "policy_reason",
    )
    yield "net.requested", _text_fields(payload, row, *names)


def _dns(row: Row) -> Iterator[Told]:
    payload = known(
        {
            **{
                name: row.get(name) if isinstance(row.get(name), (int, str)) else None
                for name in ("qtype", "qclass", "rcode")
            },
            "resolver_ms": count(row.get("upstream_resolver_ms")),
        }
    )
    names = ("qname", "answer_ip", "decision", "matched_rule", "source_proto", "process_name")
    yield "dns.queried", _text_fields(payload, row, *names)


def _file(row: Row) -> Iterator[Told]:
    action = text(row.get("action"))
    payload = known({"action": action, "size": count(row.get("size")), "entry_kind": text(row.get("kind"))})
    yield "fs.changed", _text_fields(payload, row, "path")


def _exec(row: Row) -> Iterator[Told]:
    """The one row that is written twice: at the start and, with a code or a duration, at the end."""
    exec_id = identifier(str(row.get("exec_id"))) if isinstance(row.get("exec_id"), (int, str)) else None
    begun = known({"exec_id": exec_id, "process_name": text(row.get("process_name"))})
    yield "process.started", _text_fields(begun, row, "command", "source")
    code, duration = _whole(row.get("exit_code")), count(row.get("duration_ms"))
    if code is None and duration is None:
        return
    done = known(
        {
            "exec_id": exec_id,
            "exit_code": code,
            "duration_ms": duration,
            "stdout_bytes": count(row.get("stdout_bytes")),
            "stderr_bytes": count(row.get("stderr_bytes")),
        }
    )
    yield "process.exited", _text_fields(done, row, "stdout_preview", "stderr_preview")


def _audit(row: Row) -> Iterator[Told]:
    payload = known({name: _whole(row.get(name)) for name in ("pid", "ppid", "uid")})
    put_value(payload, "argv", parsed(row.get("argv")))
    yield "process.audited", _text_fields(payload, row, "exe", "comm", "cwd", "tty", "parent_exe")


def _credential(row: Row) -> Iterator[Told]:
    payload = known(
        {"reference": text(row.get("substitution_ref")), "material": text(row.get("material_class"))}
    )
    yield "credential.used", _text_fields(payload, row, "source", "outcome", "provider")


def _rule(row: Row) -> Iterator[Told]:
    payload = _for(row)
    put_value(payload, "rule", parsed(row.get("rule_json")))
    put_value(payload, "event", parsed(row.get("event_json")))
    yield (
        "security.rule_matched",
        _text_fields(payload, row, "rule_id", "rule_action", "detection_level", "event_type"),
    )


def _decision(row: Row) -> Iterator[Told]:
    payload = _for(row)
    for ours in ("previous", "requested", "effective"):
        payload.update(known({ours: text(row.get(f"{ours}_decision"))}))
    yield "security.decided", _text_fields(payload, row, "stage", "actor", "rule_id", "reason", "event_type")


def _ask(row: Row) -> Iterator[Told]:
    payload = _for(row)
    yield "security.asked", _text_fields(payload, row, "ask_id", "status", "rule_id", "resolver", "reason")


def _for(row: Row) -> dict[str, Any]:
    """Security rows carry the id of the event that triggered them, not one of their own."""
    return known({"for_event_id": identifier(row.get("event_id"))})


TABLES: Mapping[str, Tell] = {
    "net_events": _net,
    "dns_events": _dns,
    "fs_events": _file,
    "exec_events": _exec,
    "audit_events": _audit,
    "substitution_events": _credential,
    "security_rule_events": _rule,
    "security_decision_events": _decision,
    "security_ask_events": _ask,
}
