"""Decides incrementally who owns a session's calls (contract 8): finds the other holders by claims, locks what is decided, marks whom it concerns.

A claim says: this session's call may be the one that everybody means who claims the same identity (``fold.ownership.identities``). Whoever decides about
an identity holds its row of ``call_groups``, so two workers never decide at once that both, or neither, own a call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from turnledger.contract.canonical import dumps
from turnledger.fold.model import Row
from turnledger.fold.ownership import DECIDING, Family, Holder, Ownership, decide, holder, identities
from turnledger.rollup.rows import Loaded, Statements
from turnledger.store.write_binary import RowEncoder

Claim = tuple[bytes, str, bytes, int | None]
"""(identity, call_key, content, number of the call's turn). An empty ``call_key`` claims a place in a family."""

CLAIMS = RowEncoder(
    (("session_no", "int8"), ("turn_no", "int4")),
    (("identity", "bytea"), ("call_key", "text"), ("content", "bytea")),
)
Concerned = dict[int, set[int] | None]
"""Sessions to roll up again, by number, with the turns that it is about; None: it may be any of them."""
_LINKS = ("parent_session_id", "fork_parent_session_id", "fork_stream", "fork_at_seq")


@dataclass(slots=True)
class Decision:
    """Who owns the calls of one session, and which other sessions must be rolled up again."""

    ownership: Ownership
    concerned: Concerned


class Linked(Exception):
    """Calls of turns that were not read hang together with those that were: they must be decided with them."""

    def __init__(self, turns: set[int]) -> None:
        super().__init__(sorted(turns))
        self.turns = turns


def settle(do: Statements, loaded: Loaded, changed: set[bytes]) -> Decision:
    """Decide the owners of a session's calls and write its claims (design 5, steps 3 and 4). In the session's transaction, after its lock.

    ``changed`` gathers the identities whose claims moved in this transaction: after :class:`Linked`, the same set is given again with more
    turns read.
    """
    family = _family(do, loaded.rows.tenant, [_holder(loaded)])
    before, after = claims_of(do, loaded, family)
    changed |= {claim[0] for claim in before ^ after}
    mine = {identity for identity, call_key, _, _ in after if call_key}

    locked = changed | _shared(do, loaded.session_no, mine)
    _lock(do, locked)
    _write(do, loaded.session_no, before - after, after - before)
    while True:
        # In statements of their own after the locks: whatever others decided before is visible now.
        holders, numbers, group = _others(do, loaded, mine)
        unlocked = group - locked
        if not unlocked:
            break
        _lock(do, unlocked)
        locked |= unlocked
    if loaded.turns is not None and holders:
        _all_there(do, loaded, group)

    everybody = _family(do, loaded.rows.tenant, [_holder(loaded), *holders])
    ownership = decide(everybody.values())
    concerned = _disagreeing(do, holders, numbers, ownership)
    kin = _kin(loaded.rows.tenant, loaded.rows.session_id)
    unaware = _unaware(do, loaded, family, changed & mine)
    if kin in changed:
        found = do.rows("claimed", identities=[kin], session_no=loaded.session_no)
        unaware |= {row["session_no"] for row in found}
    concerned |= dict.fromkeys(unaware)
    own = [found for found in ownership.findings if found[0] == loaded.rows.session_id]
    return Decision(Ownership(ownership.owners, own), concerned)


def _all_there(do: Statements, loaded: Loaded, group: set[bytes]) -> None:
    """Raise :class:`Linked` where other turns of the session claim what others claim too."""
    assert loaded.turns is not None
    found = do.rows("linked_turns", identities=list(group), session_no=loaded.session_no)
    missing = {row["turn_no"] for row in found} - loaded.turns
    if missing:
        raise Linked(missing)


# --- claims -----------------------------------------------------------------------------------------------------------------------


def claims_of(do: Statements, loaded: Loaded, family: Mapping[str, Holder]) -> tuple[set[Claim], set[Claim]]:
    """(what the session claimed when it was last rolled up, what it claims now). ``family``: what it descends from, by session."""
    known = do.known_claims(loaded.session_no)
    if known is not None:
        return known
    before = {
        (row["identity"], row["call_key"], row["content"], row["turn_no"])
        for row in loaded.before["call_claims"]
    }
    return before, _claims(do, loaded, family)


def _claims(do: Statements, loaded: Loaded, family: Mapping[str, Holder]) -> set[Claim]:
    """What the session claims now. It claims its own numbers (for its forks to find) only where somebody claims them already."""
    tenant, me = loaded.rows.tenant, loaded.rows.session_id
    links = dumps([loaded.rows.facts[name] for name in _LINKS])
    forked_from = [ancestor for ancestor, _, _ in Family(family.values()).forks(me)]
    parents = [
        parent
        for parent in (loaded.rows.facts["fork_parent_session_id"], loaded.rows.facts["parent_session_id"])
        if parent is not None
    ]
    asked = _asked(do, loaded)
    claims: set[Claim] = set()
    for row in loaded.rows.calls:
        kin = {*forked_from, *(parents if row["inherited_event"] else ())} - {me}
        if row["model_call_id"] in asked:
            kin.add(me)
        content = sha256(dumps([*(row[name] for name in DECIDING), (row["order_key"] or b"").hex()]) + links)
        claims.update(
            (identity, row["call_key"], content.digest()[:16], row["turn_no"])
            for identity in identities(tenant, row, kin)
        )
    if parents:
        claims.add((_kin(tenant, me), "", sha256(links).digest()[:16], None))
        claims.update((_kin(tenant, ancestor), "", b"", None) for ancestor in family if ancestor != me)
        claims.update((_kin(tenant, parent), "", b"", None) for parent in parents if parent != me)
    return claims


def _kin(tenant: str, session_id: str) -> bytes:
    """The identity of a session's place in its family: claimed by itself where it has a parent, and by its descendants."""
    return sha256(f"kin\0{tenant}\0{session_id}".encode()).digest()


def _asked(do: Statements, loaded: Loaded) -> set[str]:
    """Numbers (``model_call_id``) of the session's calls that other sessions claim to share with it."""
    named = {row["model_call_id"] for row in loaded.rows.calls if row["model_call_id"] is not None}
    own = {_numbered(loaded, number): number for number in named}
    found = do.rows("claimed", identities=list(own), session_no=loaded.session_no) if own else []
    return {own[row["identity"]] for row in found}


def _numbered(loaded: Loaded, number: str) -> bytes:
    return number_identity(loaded.rows.tenant, loaded.rows.session_id, number)


def number_identity(tenant: str, session_id: str, number: str) -> bytes:
    """The identity of a call of a session by its number alone."""
    (identity,) = identities(tenant, {"model_call_id": number}, [session_id])
    return identity


def _lock(do: Statements, wanted: Iterable[bytes]) -> None:
    ordered = sorted(wanted)
    if ordered:
        do.run("lock_identities", identities=ordered)


def _write(do: Statements, session_no: int, gone: set[Claim], new: set[Claim]) -> None:
    if gone:
        pairs = sorted(gone, key=_place)
        do.run(
            "unclaim",
            sessions=[session_no] * len(pairs),
            identities=[identity for identity, _, _, _ in pairs],
            keys=[key for _, key, _, _ in pairs],
            turns=[turn_no for _, _, _, turn_no in pairs],
        )
    do.copy(
        "call_claims",
        tuple(CLAIMS.names),
        [
            CLAIMS.encode(session_no, turn_no, {"identity": identity, "call_key": key, "content": content})
            for identity, key, content, turn_no in sorted(new, key=_place)
        ],
    )


def _place(claim: Claim) -> tuple[bytes, str, bytes, bool, int]:
    return *claim[:3], claim[3] is not None, claim[3] or 0


# --- the others -------------------------------------------------------------------------------------------------------------------


def _holder(loaded: Loaded) -> Holder:
    return holder(loaded.rows.session_id, loaded.rows.facts, list(loaded.rows.calls))


def _family(do: Statements, tenant: str, holders: Sequence[Holder]) -> dict[str, Holder]:
    """The given sessions and all that they descend from, as far as the fold has seen them; those that hold nothing have no calls."""
    known = {one.session_id: one for one in holders}
    missing = _parents_of(known.values()) - known.keys()
    while missing:
        found = do.rows("links", tenant=tenant, sessions=sorted(missing))
        added = [holder(row["session_id"], row, []) for row in found]
        known.update((one.session_id, one) for one in added)
        missing = _parents_of(added) - known.keys()
    return known


def _parents_of(holders: Iterable[Holder]) -> set[str]:
    return {
        parent
        for one in holders
        for parent in (one.parent_session_id, one.fork_parent_session_id)
        if parent is not None
    }


def _shared(do: Statements, session_no: int, mine: set[bytes]) -> set[bytes]:
    """Those of the session's identities that somebody else claims too."""
    if not mine:
        return set()
    return {row["identity"] for row in do.rows("claimed", identities=list(mine), session_no=session_no)}


def _others(
    do: Statements, loaded: Loaded, mine: set[bytes]
) -> tuple[list[Holder], dict[str, int], set[bytes]]:
    """(the other sessions with the calls in question, their numbers, every identity that links them), closed over shared identities."""
    pairs: set[tuple[int, str]] = set()
    known, new, linking = set(mine), set(mine), set[bytes]()
    while new:
        claimed = do.rows("claimed", identities=list(new), session_no=loaded.session_no)
        linking |= {row["identity"] for row in claimed}
        added = {(row["session_no"], row["call_key"]) for row in claimed if row["call_key"]} - pairs
        pairs |= added
        sessions, keys = [no for no, _ in added], [key for _, key in added]
        found = (
            {row["identity"] for row in do.rows("claims_of", sessions=sessions, keys=keys)}
            if added
            else set()
        )
        new = found - known
        known |= new
    if not pairs:
        return [], {}, linking
    sessions, keys = [no for no, _ in pairs], [key for _, key in pairs]
    calls: dict[str, list[Row]] = defaultdict(list)
    numbers: dict[str, int] = {}
    for row in do.calls_of(sessions, keys):
        calls[row["session_id"]].append(row)
        numbers[row["session_id"]] = row["session_no"]
    links = {
        row["session_id"]: row for row in do.rows("links", tenant=loaded.rows.tenant, sessions=list(calls))
    }
    return [holder(name, links.get(name, {}), rows) for name, rows in calls.items()], numbers, linking


def _disagreeing(
    do: Statements, holders: Sequence[Holder], numbers: Mapping[str, int], ownership: Ownership
) -> Concerned:
    """Sessions whose overlays say another owner than the one decided now, and in which turns."""
    decided = {
        (numbers[one.session_id], row["call_key"]): (
            ownership.owner(one.session_id, row["call_key"]),
            row["turn_no"],
        )
        for one in holders
        for row in one.calls
    }
    if not decided:
        return {}
    stored = do.rows(
        "owners_of",
        sessions=[no for no, _ in decided],
        keys=[key for _, key in decided],
        turns=[turn_no for _, turn_no in decided.values()],
    )
    concerned: dict[int, set[int]] = defaultdict(set)
    for row in stored:
        owner, turn_no = decided[row["session_no"], row["call_key"]]
        if row["owner_session_id"] != owner:
            concerned[row["session_no"]].update(() if turn_no is None else (turn_no,))
    return {number: set(turns) for number, turns in concerned.items()}


def _unaware(do: Statements, loaded: Loaded, family: Mapping[str, Holder], changed: set[bytes]) -> set[int]:
    """Ancestors with a call of a number that this session has begun to share with them, and that they have not claimed."""
    tenant = loaded.rows.tenant
    names = [name for name in family if name != loaded.rows.session_id]
    if not names or not changed:
        return set()
    numbers = {
        row["session_id"]: row["session_no"] for row in do.rows("links", tenant=tenant, sessions=names)
    }
    claimed = {
        (row["identity"], row["session_no"])
        for row in do.rows("claimed", identities=list(changed), session_no=loaded.session_no)
    }
    wanted: dict[int, set[str]] = defaultdict(set)
    for call_id in {row["model_call_id"] for row in loaded.rows.calls if row["model_call_id"] is not None}:
        for name, number in numbers.items():
            (identity,) = identities(tenant, {"model_call_id": call_id}, [name])
            if identity in changed and (identity, number) not in claimed:
                wanted[number].add(call_id)
    if not wanted:
        return set()
    found = do.rows("numbered", sessions=list(wanted), numbers=sorted(set().union(*wanted.values())))
    return {row["session_no"] for row in found}
