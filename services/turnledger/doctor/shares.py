"""Invariant I5 of what a long session's sums are made of (decision 20): every kept share is what its block of turns adds now, on every level.

Sums that are right do not say that the shares are: the next turn that moves would make new sums of wrong ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from turnledger.doctor.faults import Fault
from turnledger.doctor.rows import Row
from turnledger.fold.shares import Share, load
from turnledger.rollup.blocks import FORMAT, basis_of, levels_of
from turnledger.store.read import SessionRef


def share_faults(
    ref: SessionRef,
    facts: Row,
    computed: Callable[[], dict[int, Share] | None],
    stored: Sequence[Row],
) -> list[Fault]:
    """``facts``: those that a fresh fold gives; ``computed`` answers with what each block of turns adds, None where a turn has no number in the projection:
    then its rows are not what they should be (I4), and which turns make a block follows from them. ``stored``: {level, block, share}. A session without
    shares is read whole by the next roll-up, whatever its length: nothing is wrong with that."""
    named = {"tenant": ref.tenant, "session_id": ref.session_id}
    kept = {(row["level"], row["block"]): row["share"] for row in stored}
    basis = kept.pop((0, 0), None)
    if basis is None:
        if kept:
            return [Fault("I5", "shares of a session do not say what they were made for", named)]
        return []
    if basis != basis_of(facts):
        if _of_another_format(basis):
            # The next roll-up makes them anew.
            return []
        row = {**named, "stored": basis, "computed": basis_of(facts)}
        return [Fault("I5", "shares of a session were made for something else than it is", row)]
    shares_of = computed()
    if shares_of is None:
        return []
    faults: list[Fault] = []
    for level, of_level in enumerate(levels_of(shares_of), 1):
        for block, share in of_level.items():
            text = kept.pop((level, block), None)
            place = {**named, "level": level, "block": block}
            if text is None:
                faults.append(Fault("I5", "a block of turns has no share", place))
            elif text != share.dump():
                faults.append(
                    Fault("I5", "a share is not what its turns add", {**place, **_first(text, share)})
                )
    # A block whose last turn is gone adds nothing.
    faults += [
        Fault("I5", "a share stands for no turns", {**named, "level": level, "block": block})
        for (level, block), text in sorted(kept.items())
        if text != Share().dump()
    ]
    return faults


def _of_another_format(basis: str) -> bool:
    try:
        return type(found := json.loads(basis)) is list and found[:1] != [FORMAT]
    except ValueError:
        return False


def _first(text: str, share: Share) -> Row:
    """The first sum that differs."""
    try:
        stored = load(text).sums
    except (ValueError, TypeError, AttributeError, LookupError):
        return {"stored": text[:200]}
    for section, key in _places(stored, share.sums):
        have, want = stored.get(section, {}).get(key), share.sums[section].get(key)
        if have != want:
            return {"section": section, "key": list(key), "stored": have, "computed": want}
    return {"stored": text[:200]}


def _places(
    *sides: Mapping[str, Mapping[tuple[int | str | None, ...], object]],
) -> Iterator[tuple[str, tuple[int | str | None, ...]]]:
    for section in Share().sums:
        for key in dict.fromkeys(key for side in sides for key in side.get(section, {})):
            yield section, key
