"""Reasons of the checks about delivery: what never came, came twice in two versions, or came and could not be read."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from turnledger.doctor.findings import (
    Evidence,
    Explain,
    Finding,
    Reason,
    Row,
    Seen,
    clock,
    plural,
    some,
    stream_name,
)


def open_gap(finding: Finding, evidence: Evidence) -> Reason:
    missing = sum(row["to_seq"] - row["from_seq"] + 1 for row in finding.rows)
    largest = max(finding.rows, key=lambda row: row["to_seq"] - row["from_seq"])
    name, hole = stream_name(largest), _range(largest)
    before, after = _around(largest, evidence)
    what = f"{plural(missing, 'number')} of {some(stream_name(row) for row in finding.rows)} never came; {hole} of {name} "
    restarted = _later_epoch(largest, evidence)
    if before is None and after is not None:
        what += f"is the beginning: the first event that came is {after}, so the producer began to send late, or its first records left Kafka unread"
    elif after is None:
        closed = [one for one in evidence.declared if one.type == "stream.closed"]
        last = f" ({before} was the last)" if before is not None else ""
        what += f"is the end{last}: " + (
            f"stream.closed says last_seq {closed[-1].payload.get('last_seq')}, and nothing behind {hole} came"
            if closed
            else "a declaration names numbers that never came"
        )
    else:
        what += f"lies between {before} and {after}: both neighbours came, what is between them did not"
    if restarted is not None:
        what += f"; the producer went on under epoch {restarted}, so what it had not sent when it restarted is lost unless its spool kept it"
    if evidence.dead_letters:
        letters = plural(evidence.dead_letters, "record")
        return Reason(
            f"{what}. {letters} of this session {'is a dead letter' if evidence.dead_letters == 1 else 'are dead letters'}, and a dead "
            f"record does not fill its position",
            f"`turnledger dead list --session {evidence.name}` first: a letter that is repaired and requeued fills its number",
        )
    waits = "" if evidence.ended else f"; {evidence.life()}, so that it may still come"
    return Reason(
        what + waits,
        f"send {name} again from the producer's file or spool (what came already counts as duplicates); what is lost for good, have it "
        f"declared by stream.lost {hole}",
    )


def declared_loss(finding: Finding, evidence: Evidence) -> Reason:
    reasons = [one.payload.get("reason") for one in evidence.declared if one.type == "stream.lost"]
    missing = sum(row["to_seq"] - row["from_seq"] + 1 for row in finding.rows)
    said = some(reason for reason in reasons if isinstance(reason, str))
    return Reason(
        f"the producer said itself that it lost {plural(missing, 'event')} of {some(stream_name(row) for row in finding.rows)}"
        + (f"; its reason: {said}" if said != "none" else ", without a reason"),
        "what they used is in no sum: read the figures as lower bounds, and look into the producer's log at the time of stream.lost"
        + (f" ({clock(_at(evidence, 'stream.lost'))})"),
    )


def superseded_stream(finding: Finding, evidence: Evidence) -> Reason:
    reasons = [one.payload.get("reason") for one in evidence.declared if one.type == "stream.superseded"]
    return Reason(
        f"{some(stream_name(row) for row in finding.rows)} {'is' if finding.count == 1 else 'are'} told better by another stream"
        f" ({some(reason for reason in reasons if isinstance(reason, str))}): the fold leaves it out, the ledger keeps it",
        "nothing to do: a newer reader read the same file again",
    )


def conflict(finding: Finding, evidence: Evidence) -> Reason:
    places: dict[str, set[int]] = defaultdict(set)
    for row in finding.rows:
        if row.get("seq") is not None:
            places[stream_name(row)].add(row["seq"])
    several = [
        row
        for row, number in Counter(
            (stream_name(r), r.get("seq"), r.get("receipt_key")) for r in finding.rows
        ).items()
        if number > 1
    ]
    kept = some(seen.type for seen in evidence.events.values()) if evidence.events else None
    what = f"{plural(finding.count, 'record')} said something else for a position that was taken"
    for name, seqs in places.items():
        run = max(seqs) - min(seqs) + 1
        if run >= 3 and len(seqs) == run:
            return Reason(
                f"{what}: every number from {min(seqs)} to {max(seqs)} of {name} came with two contents, as when a producer restarts and "
                f"numbers again without a new epoch",
                f"give the producer a new epoch at each start; the first versions stay, the refused ones are in Kafka at the positions of "
                f"`turnledger sessions show {evidence.name} --json` (conflicts)",
            )
    what += f"; kept are {kept}" if kept else ""
    if several:
        what += f"; {plural(len(several), 'position')} came with more than two contents"
    return Reason(
        f"{what}. One record was changed between two sends, or two writers share {some(places) if places else 'a stream'}",
        "compare kept_sha256 and lost_sha256 with what the producer has; a changed fact needs a position, or a receipt key with its revision, of its own",
    )


def dead_letter(finding: Finding, evidence: Evidence) -> Reason:
    reasons = some(
        f"{row['reason']}{' in ' + row['field'] if row.get('field') else ''}" for row in finding.rows
    )
    where = some(f"{row['topic']}/{row['partition']}" for row in finding.rows)
    gaps = sum(stream["open_gaps"] or 0 for stream in evidence.streams)
    return Reason(
        f"{plural(finding.count, 'record')} naming this session could not be read: {reasons} (on {where}); what they say is in no figure"
        + (f", and {plural(gaps, 'gap')} of the session may be theirs" if gaps else ""),
        f"`turnledger dead list --session {evidence.name}`, then `dead show ID`; a repaired record goes through with `dead requeue ID --fix FILE`",
    )


def key_mismatch(finding: Finding, evidence: Evidence) -> Reason:
    where = some(
        f"{row.get('topic')}/{row.get('partition')} from offset {row.get('first')}" for row in finding.rows
    )
    return Reason(
        f"{plural(finding.count, 'record')} came under a Kafka key that is not {evidence.name} ({where}): the body's session was taken, but "
        f"records of one "
        f"session on several partitions reach the ledger in no order ({some(evidence.told_by(''))} told this session)",
        "have whoever publishes use <tenant>/<session_id> as the key; turnledger's own Ledger, publish and import do",
    )


def event_after_close(finding: Finding, evidence: Evidence) -> Reason:
    row = finding.rows[0]
    later = _later_epoch(row, evidence)
    return Reason(
        f"{stream_name(row)} was closed at {row['last_seq']}, and {plural(finding.count, 'event')} came above it (first {row['from_seq']}): "
        + (
            f"the producer has an epoch {later} as well, so a writer of the old one went on"
            if later is not None
            else "it was closed too early, or a second writer uses the stream"
        ),
        "they are counted; look at which process wrote them (`origin` of the events) and close a stream when its last writer ended",
    )


def late_after_vacuum(finding: Finding, evidence: Evidence) -> Reason:
    return Reason(
        f"{plural(finding.count, 'new event')} came after the session's detail was deleted ({evidence.sums.get('detail') or 'vacuumed'}): "
        f"kept in the ledger, while the rollups stay as they were",
        "if they matter, import the session again under another id; else let the spool or file that still sends them end",
    )


def _range(row: Row) -> str:
    return f"{row['from_seq']}" if row["from_seq"] == row["to_seq"] else f"{row['from_seq']}–{row['to_seq']}"


def _around(row: Row, evidence: Evidence) -> tuple[Seen | None, Seen | None]:
    return evidence.around.get((row["producer"], row["epoch"], row["stream"], row["from_seq"]), (None, None))


def _later_epoch(row: Row, evidence: Evidence) -> int | None:
    later = [
        stream["epoch"]
        for stream in evidence.streams
        if (stream["producer"], stream["stream"]) == (row["producer"], row["stream"])
        and stream["epoch"] > row["epoch"]
    ]
    return min(later, default=None)


def _at(evidence: Evidence, kind: str) -> str | None:
    return next((one.at for one in evidence.declared if one.type == kind), None)


REASONS: Final[dict[str, Explain]] = {
    "open_gap": open_gap,
    "declared_loss": declared_loss,
    "superseded_stream": superseded_stream,
    "conflict": conflict,
    "dead_letter": dead_letter,
    "key_mismatch": key_mismatch,
    "event_after_close": event_after_close,
    "late_after_vacuum": late_after_vacuum,
}
