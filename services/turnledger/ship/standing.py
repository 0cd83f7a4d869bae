"""Owns how ship stands, as a person and a program are told: one row a file and their sums. Nothing is changed by asking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from turnledger.ship import growing, state
from turnledger.ship.followed import Followed
from turnledger.ship.follower import Follower
from turnledger.ship.state import Checkpoint

STATES = ("told", "behind", "held", "unreadable", "nobody's", "gone")
"""``held``: what is there was told, but for an end that is still being written. ``nobody's``: a file of no known harness."""


def row(
    checkpoint: Checkpoint,
    *,
    size: int,
    lag_bytes: int,
    lag_seconds: float | None,
    trouble: str | None,
    read: bool,
) -> dict[str, Any]:
    """One file. ``lag_seconds`` is null where nobody follows; ``read``: whether it stands as it was last read."""
    held = not checkpoint.settled and bool(checkpoint.notes.get("held"))
    if checkpoint.gone:
        where = "gone"
    elif trouble is not None:
        where = "unreadable"
    elif not read:
        where = "behind"
    elif checkpoint.harness is None and not held:
        where = "nobody's"
    else:
        where = "held" if held else "told"
    return {
        "path": str(checkpoint.path),
        "harness": checkpoint.harness,
        "state": where,
        "generation": checkpoint.generation,
        "size": size,
        "told": checkpoint.told,
        "lag_bytes": lag_bytes,
        "lag_seconds": lag_seconds,
        "events": checkpoint.events,
        "trouble": trouble,
        **{name: checkpoint.notes.get(name, []) for name in ("sessions", "findings")},
        "quarantined": checkpoint.notes.get("quarantined", 0),
    }


def sums(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What the rows come to."""
    listed = list(rows)
    states = Counter(each["state"] for each in listed)
    seconds = [each["lag_seconds"] for each in listed if each["lag_seconds"] is not None]
    return {
        "files": {name: states[name] for name in STATES},
        "events": sum(each["events"] for each in listed),
        "quarantined": sum(each["quarantined"] for each in listed),
        "lag": {
            "bytes": sum(each["lag_bytes"] for each in listed),
            "seconds": max(seconds, default=0.0),
        },
    }


def of_follower(follower: Follower, sink: str) -> dict[str, Any]:
    """How a running ship stands."""
    now = follower.now()
    rows = [_followed(each, now) for each in follower.roll.files.values()]
    rows.sort(key=lambda each: each["path"])
    missing = set(follower.roll.found.missing)
    shown = sums(rows)
    shown["files"]["gone"] = follower.roll.gone
    return {
        "running": True,
        "sink": sink,
        "folders": [{"path": str(each), "there": each not in missing} for each in follower.folders],
        "told_by_system": follower.hints.told,
        "reasons": follower.reasons(),
        "refused": follower.way.refused,
        **shown,
        "list": rows,
    }


def _followed(followed: Followed, now: float) -> dict[str, Any]:
    since = followed.behind_since
    return row(
        followed.checkpoint,
        size=followed.look.size,
        lag_bytes=followed.lag_bytes,
        lag_seconds=round(now - since, 3) if since is not None else 0.0,
        trouble=followed.trouble,
        read=followed.checkpoint.stamp == followed.look.stamp,
    )


def of_state(standing: state.Standing) -> dict[str, Any]:
    """How it stands where nothing ships: by the checkpoints, and the files as they are now. Files that were made since are not known."""
    rows = []
    for checkpoint in standing.checkpoints:
        try:
            look, trouble = growing.look(checkpoint.path), None
        except OSError as error:
            look, trouble = None, f"{checkpoint.path} cannot be looked at ({error.strerror})"
        checkpoint.gone = look is None and trouble is None
        size = look.size if look is not None else 0
        same = look is not None and look.stamp == checkpoint.stamp
        lag = 0 if same or look is None else max(size - checkpoint.told, 0) or size
        rows.append(row(checkpoint, size=size, lag_bytes=lag, lag_seconds=None, trouble=trouble, read=same))
    return {
        "running": False,
        "sink": None,
        "folders": [],
        "told_by_system": None,
        "reasons": [],
        "refused": 0,
        **sums(rows),
        "list": rows,
    }
