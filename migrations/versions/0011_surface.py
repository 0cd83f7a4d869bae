"""The surface for people: roles with their tenants, row-level security, and the harness ledger's own names for columns.

The SQL stands in ``migrations/sql/0011`` and is frozen. Owners, barriers and grants of views are set after every run of the migrations
(``turnledger.store.surface``), so that a later revision that makes a view cannot forget them.
"""

from __future__ import annotations

import re
from pathlib import Path

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

FOLDER = Path(__file__).resolve().parents[1] / "sql"
SLOTS = {"a": "projection_a", "b": "projection_b"}
"""Schema of each generation."""

POSITION = ', shown.seq as id, shown.occurred_at as "timestamp"'
UNIX_MS = ", floor(extract(epoch from shown.occurred_at) * 1000)::int8 as timestamp_unix_ms"
NAMED: dict[str, str] = {
    "net_events": POSITION,
    "dns_events": POSITION + ", shown.resolver_ms as upstream_resolver_ms",
    # As the harness ledger splits a path: trailing slashes away; `.` where none is left, `/` of what stands under the root.
    "fs_events": POSITION
    + r", case when rtrim(shown.path, '/') ~ '^/[^/]*$' then '/' else coalesce(substring(rtrim(shown.path, '/') from '^(.+)/[^/]*$'), '.') end"
    r" as directory, substring(rtrim(shown.path, '/') from '[^/]*$') as name",
    "exec_events": POSITION,
    "audit_events": POSITION,
    "credential_events": POSITION,
    "security_rule_events": POSITION + UNIX_MS + ", shown.rule as rule_json, shown.event as event_json",
}
"""Columns that come behind those that a view has."""

TENANT = (
    "(select exists (select from ledger.my_tenants m where m.tenant is null)) "
    "or shown.tenant = any ((select array_agg(m.tenant) from ledger.my_tenants m)::text[])"
)
GUARDED = ("dead_letters", "archives")
"""Views with a tenant and no session: what their rows are shown by. Workers copy into the tables, which row-level security forbids."""


def run(sql: str) -> None:
    """One or more statements as they stand: no bind parameters, no percent escapes."""
    op.get_bind().exec_driver_sql(sql, execution_options={"no_parameters": True})


def definition(name: str) -> str:
    """The view as it is, without its semicolon."""
    (text,) = op.get_bind().exec_driver_sql(f"select pg_get_viewdef('turnledger.{name}'::regclass)").one()
    return str(text).rstrip().rstrip(";")


def surface() -> list[str]:
    """The names of all views that people query."""
    statement = "select table_name from information_schema.views where table_schema = 'turnledger' order by 1"
    return [str(name) for (name,) in op.get_bind().exec_driver_sql(statement)]


def blocks(text: str) -> dict[str, str]:
    """The parts of a file that begin with ``-- view: NAME``, in its order."""
    parts = re.split(r"^-- view: (\w+)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def view(body: str, verb: str, name: str) -> None:
    """A view as the union of both slots."""
    branches = (body.replace("{slot}", slot).replace("{letter}", letter) for letter, slot in SLOTS.items())
    run(f"{verb} turnledger.{name} as\n" + "\nunion all\n".join(branches))


def upgrade() -> None:
    run((FOLDER / "0011" / "roles.sql").read_text())
    for name, body in blocks((FOLDER / "0011" / "views.sql").read_text()).items():
        view(body, "create or replace view", name)
    for name, more in NAMED.items():
        inner = definition(name)
        if name == "net_events":
            inner, cut = re.subn(r"\bp\.domain,", "left(p.domain, 500) as domain,", inner)
            if cut != len(SLOTS):
                raise RuntimeError(f"turnledger.net_events does not show p.domain once a slot: {inner}")
        run(f"create or replace view turnledger.{name} as select shown.*{more} from ({inner}) shown")
    for name in GUARDED:
        run(
            f"create or replace view turnledger.{name} as select shown.* from ({definition(name)}) shown where {TENANT}"
        )
    run((FOLDER / "0011" / "named_alike.sql").read_text())
    # Last: each shuts its table to everybody until the migration is committed.
    for slot in SLOTS.values():
        run((FOLDER / "0011" / "slot_roles.sql").read_text().replace("{slot}", slot))
    run((FOLDER / "0011" / "policy.sql").read_text())


def downgrade() -> None:
    run(
        "drop view turnledger.substitution_events, turnledger.security_decision_events, turnledger.security_ask_events, "
        "turnledger.event_body_blobs, turnledger.session_summary"
    )
    before = blocks((FOLDER / "0001" / "views_projection.sql").read_text())
    for name in ("model_calls", "tool_calls"):
        run(f"drop view turnledger.{name}")
        view(before[name], "create view", name)
    guarded = [name for name in surface() if "my_tenants" in definition(name)]
    for name in (*NAMED, *guarded):
        found = re.search(r"from \(\s*(select.*)\)\s*shown\b", definition(name), re.DOTALL | re.IGNORECASE)
        if found is None:
            raise RuntimeError(f"turnledger.{name} is not what revision 0011 made of it: {definition(name)}")
        inner = re.sub(r'"left"\((p\.domain), 500\) AS domain', r"\1", found[1])
        run(f"drop view turnledger.{name}; create view turnledger.{name} as {inner}")
    (owner,) = op.get_bind().exec_driver_sql("select quote_ident(current_user)").one()
    for name in surface():
        run(
            f"alter view turnledger.{name} owner to {owner}; alter view turnledger.{name} reset (security_barrier)"
        )
    for slot in SLOTS.values():
        run(f"drop policy tenants on {slot}.usage_hourly; drop policy workers on {slot}.usage_hourly")
        run(f"alter table {slot}.usage_hourly disable row level security")
    run((FOLDER / "0011" / "down.sql").read_text())
