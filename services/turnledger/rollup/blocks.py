"""Long sessions by blocks of turns: what a block adds to the sums is kept, so that a turn that moves costs the same in a session of any age.

A block of level 1 is 8 turns by their numbers; a block of each further level is 8 of the level below. When turns move, their blocks are read and made
again, then the blocks above them from what is kept of their neighbours, then the session's own rows from the highest level: sums are always set from their
parts, nothing is ever added to an old figure. Reading it all gives the same shares (``fold.shares``), and does so wherever what they were made for has moved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from turnledger.contract.canonical import dumps
from turnledger.fold import shares
from turnledger.fold.model import Row
from turnledger.fold.rollup import PriceFunction, SessionRollup, SessionRows, part_of, whole
from turnledger.fold.shares import Share, merged
from turnledger.rollup.rows import Loaded, Place, Statements
from turnledger.store.write_binary import RowEncoder

FAN = 8
"""Turns in a block and blocks in a block above. At 8 a moved turn costs 8 turns read and at most 21 kept shares and those of the highest level,
whatever the session's age; at 16 it cost a third more, at 4 there would be a share to three turns."""
LEVELS = 4
"""The session's rows are summed from blocks of 4,096 turns: four of them at 200,000 events of fourteen a turn."""
LONG = FAN
"""Turns up to which a session has no shares and is read whole."""
MOST = 64
"""Blocks that are read at once: when more moved, all are read."""
FORMAT = 2
"""Of what a share holds. Shares of another format are made anew."""

_SHARES = RowEncoder((("session_no", "int8"),), (("level", "int4"), ("block", "int4"), ("share", "text")))


def blocks_of(marks: Iterable[Row]) -> set[int] | None:
    """The blocks of level 1 that marks are about; None where all of the session is to be read. ``marks``: {turns, basis}."""
    moved: set[int] = set()
    for mark in marks:
        if mark["turns"] is None or mark["basis"] is None:
            return None
        moved.update(turn_no // FAN for turn_no in mark["turns"])
    return moved if len(moved) <= MOST else None


def with_turns(moved: set[int] | None, turns: Iterable[int]) -> set[int] | None:
    """The same with the blocks of some more turns."""
    if moved is None:
        return None
    more = moved | {turn_no // FAN for turn_no in turns}
    return more if len(more) <= MOST else None


def turns_of(moved: Iterable[int]) -> list[int]:
    """The numbers that turns in these blocks may have."""
    return [turn_no for block in sorted(moved) for turn_no in range(block * FAN, (block + 1) * FAN)]


def basis_of(facts: Row) -> str:
    """What every share of a session depends on beside the rows of its turns, which marks do not tell."""
    links = ("kind", "parent_session_id", "fork_parent_session_id", "fork_stream", "fork_at_seq")
    return dumps([FORMAT, *(facts[name] for name in links)]).decode()


@dataclass(slots=True)
class Pieces:
    """A session that is too long to be read at once."""

    basis: str
    """What its shares are made for from here on."""
    blocks: list[set[int]]
    """Those of each piece."""


def pieces_of(do: Statements, session_no: int) -> Pieces | None:
    """The pieces in which a session is read anew, and no share of it any more; None where it is to be read at once: it is not long, or what it comes to
    depends on it as a whole."""
    found = do.rows("extent", session_no=session_no)
    if not found or found[0]["highest"] < MOST * FAN:
        return None
    do.run("delete", "rollup_shares", sessions=[session_no])
    basis = basis_of(found[0])
    _copy(do, session_no, [{"level": 0, "block": 0, "share": basis}])
    end = found[0]["highest"] // FAN + 1
    return Pieces(basis, [set(range(at, min(at + MOST, end))) for at in range(0, end, MOST)])


def roll_up_blocks(
    do: Statements,
    loaded: Loaded,
    moved: set[int] | None,
    owner: Callable[[str], str],
    price: PriceFunction,
    *,
    has_shares: bool,
) -> SessionRollup:
    """The sums of a session of which these blocks were read, or (None) all. Keeps the shares that moved, if it is long."""
    if moved is None and len(loaded.turn_numbers) <= LONG:
        if has_shares:
            do.run("delete", "rollup_shares", sessions=[loaded.session_no])
        part = part_of(loaded.rows, owner, price)
        return _with_sole(whole(loaded.rows, part.share, [part]), part.share)
    outside, by_block = split(loaded.rows, loaded.turn_numbers, lambda row: row["turn_no"])
    loose = part_of(outside, owner, price)
    parts = {block: part_of(rows, owner, price) for block, rows in by_block.items()}
    shares_of = {block: part.share for block, part in parts.items()}
    if moved is None:
        top = _keep_all(do, loaded, shares_of, has_shares)
    else:
        for block in moved - shares_of.keys():
            shares_of[block] = Share()  # its last turn is gone
        top = _keep_moved(do, loaded, shares_of)
    share = merged([loose.share, *top])
    return _with_sole(whole(loaded.rows, share, [loose, *parts.values()]), share)


def _with_sole(rollup: SessionRollup, share: Share) -> SessionRollup:
    """With ``inherited_without_source``, a row a call, in the order of contract 5."""
    rollup.findings += [
        {
            "check": "inherited_without_source",
            "severity": "warning",
            "row": {"turn_key": turn_key, "model_call_id": call_id, "message_id": message_id},
        }
        for _, _, turn_key, call_id, message_id in sorted(share.sums["sole"], key=lambda key: key[:2])
    ]
    return rollup


def split(
    rows: SessionRows, numbers: Mapping[str, int], turn_of: Callable[[Row], int | None]
) -> tuple[SessionRows, dict[int, SessionRows]]:
    """(what stands outside of turns, the rows of each block). ``numbers`` by ``turn_key``; ``turn_of`` a call, tool call or contribution."""
    found: dict[int | None, SessionRows] = defaultdict(
        lambda: replace(rows, turns=[], calls=[], tools=[], contributions=[])
    )
    for turn in rows.turns:
        _append(found[numbers[turn["turn_key"]] // FAN].turns, turn)
    for name in ("calls", "tools", "contributions"):
        for row in getattr(rows, name):
            turn_no = turn_of(row)
            _append(getattr(found[None if turn_no is None else turn_no // FAN], name), row)
    outside = found[None]
    return outside, {block: part for block, part in found.items() if block is not None}


def _append(rows: Sequence[Row], row: Row) -> None:
    assert isinstance(rows, list)
    rows.append(row)


# --- what is kept -----------------------------------------------------------------------------------------------------------------


def _keep_all(do: Statements, loaded: Loaded, shares_of: dict[int, Share], has_shares: bool) -> list[Share]:
    """Keep every share of a long session, unless its rows are just moving from turn to turn; all shares of the highest level."""
    if has_shares:
        do.run("delete", "rollup_shares", sessions=[loaded.session_no])
    if not loaded.once:
        return list(shares_of.values())
    levels = levels_of(shares_of)
    rows: list[Row] = [{"level": 0, "block": 0, "share": basis_of(loaded.rows.facts)}]
    rows += [
        {"level": level, "block": block, "share": share.dump()}
        for level, of_level in enumerate(levels, 1)
        for block, share in of_level.items()
    ]
    _copy(do, loaded.session_no, rows)
    return list(levels[-1].values())


def _copy(do: Statements, session_no: int, rows: Sequence[Row]) -> None:
    do.copy("rollup_shares", tuple(_SHARES.names), [_SHARES.encode(session_no, row) for row in rows])


def levels_of(shares_of: dict[int, Share]) -> list[dict[int, Share]]:
    """The shares of every level by block, from those of the first."""
    levels = [shares_of]
    while len(levels) < LEVELS:
        levels.append({above: merged(members) for above, members in _grouped_above(levels[-1]).items()})
    return levels


def neighbours(moved: Iterable[int]) -> list[Place]:
    """The blocks beside those of level 1 that moved, under the same block above, and beside those above them; of the highest level none."""
    found: list[Place] = []
    of_level = set(moved)
    for level in range(1, LEVELS):
        above = {block // FAN for block in of_level}
        beside = {block for one in above for block in range(one * FAN, (one + 1) * FAN)}
        found += [(level, block) for block in sorted(beside - of_level)]
        of_level = above
    return found


def _keep_moved(do: Statements, loaded: Loaded, shares_of: dict[int, Share]) -> list[Share]:
    """Keep the shares that moved on every level, made of them and of their neighbours; all shares of the highest level."""
    number = loaded.session_no
    there: dict[int, dict[int, Share]] = defaultdict(dict)
    for row in do.shares({number: neighbours(shares_of)}, LEVELS):
        there[row["level"]][row["block"]] = shares.load(row["share"])
    kept: list[tuple[int, int, str]] = []
    of_level = shares_of
    for level in range(1, LEVELS + 1):
        kept += [(level, block, share.dump()) for block, share in of_level.items()]
        if level < LEVELS:
            above = _grouped_above(there[level] | of_level)
            of_level = {one: merged(members) for one, members in above.items()}
    if kept:
        levels, blocks, texts = map(list, zip(*kept, strict=True))
        do.run("set_shares", sessions=[number] * len(kept), levels=levels, blocks=blocks, shares=texts)
    return list((there[LEVELS] | of_level).values())


def _grouped_above(of_level: Mapping[int, Share]) -> dict[int, Sequence[Share]]:
    """Shares by the block above them."""
    above: dict[int, list[Share]] = defaultdict(list)
    for block, share in of_level.items():
        above[block // FAN].append(share)
    return dict(above)
