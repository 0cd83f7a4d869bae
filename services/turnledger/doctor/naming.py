"""Which session a person means: by its id, as tenant/session_id, or by a name. Everything behind this line knows ids alone (contract 1)."""

from __future__ import annotations

from typing import Any

import psycopg

from turnledger.errors import TurnledgerError
from turnledger.store.named import query
from turnledger.store.read import SessionRef, active_slot, of_slot

LISTED = 5
"""Sessions that a question lists."""


class NoSuchSession(TurnledgerError):
    """The ledger has no session of that id or name."""


class WhichSession(NoSuchSession):
    """Several sessions may be meant: a question, never a guess."""


def find_session(connection: psycopg.Connection[Any], typed: str, tenant: str | None = None) -> SessionRef:
    """The one session that ``typed`` means: an id, ``tenant/session_id``, a name, or ``tenant/name``.

    An id comes first: a session cannot take another's id by calling itself so. Raises :class:`WhichSession`, with what tells them apart, where
    several are meant, and :class:`NoSuchSession` where none is.
    """
    parts = typed.split("/")
    asked = {
        "named": typed,
        "ids": ["/".join(parts[at:]) for at in range(1, len(parts))],
        "tenant": tenant,
    }
    found = [SessionRef(*row) for row in connection.execute(query("read/sessions_called"), asked)]
    if len(found) > 1:
        said = [f"{one.session_id!r} of tenant {one.tenant!r}" for one in found]
        raise _which(typed, said, "Name one as tenant/session_id, or its tenant with --tenant.")
    if found:
        return found[0]
    named = connection.execute(of_slot("read/sessions_named", active_slot(connection)), asked).fetchall()
    if len(named) > 1:
        said = [
            f"{session_id!r} of tenant {owner!r} ({', '.join(models) if models else 'no model known'})"
            for _, owner, session_id, models, _ in named
        ]
        raise _which(typed, said, f"{len(named)} sessions have that name: say one by its id.")
    if named:
        return SessionRef(*named[0][:3])
    where = "" if tenant is None else f" of tenant {tenant!r}"
    raise NoSuchSession(
        f"the ledger has no session {typed!r}{where}: `turnledger sessions list` shows those it has."
    )


def letters_of(
    connection: psycopg.Connection[Any], typed: str, tenant: str | None = None
) -> tuple[str, str | None]:
    """(session id, tenant) by which dead letters are chosen that ``typed`` means. A letter may name a session that the ledger does not have: what
    is no session is taken as it was typed, and an id means that session of every tenant. Raises :class:`WhichSession` for a name of several."""
    asked: dict[str, Any] = {"named": typed, "ids": [], "tenant": tenant}
    if connection.execute(query("read/sessions_called"), asked).fetchone() is not None:
        return typed, tenant
    try:
        found = find_session(connection, typed, tenant)
    except WhichSession:
        raise
    except NoSuchSession:
        return typed, tenant
    return found.session_id, found.tenant


def _which(typed: str, said: list[str], way_out: str) -> WhichSession:
    more = f" and {len(said) - LISTED} more" if len(said) > LISTED else ""
    return WhichSession(f"which session is {typed!r}: {', '.join(said[:LISTED])}{more}? {way_out}")
