"""What the demo asks the ledger: only the views that everybody has, in SQL that a person could type."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Self

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]


@dataclass(frozen=True)
class Account:
    """How the records that were read ended (contract 3)."""

    records: int = 0
    accepted: int = 0
    duplicates: int = 0
    conflicts: int = 0
    dead: int = 0

    def __sub__(self, before: Account) -> Account:
        return Account(
            self.records - before.records,
            self.accepted - before.accepted,
            self.duplicates - before.duplicates,
            self.conflicts - before.conflicts,
            self.dead - before.dead,
        )


class Question(NamedTuple):
    """A question of a platform team, and its SQL. ``%(run)s`` is a pattern of session ids."""

    asks: str
    sql: str


QUESTIONS = (
    Question(
        "What did each model cost, and how much of its input came from the cache?",
        """\
select provider, model, sum(call_count) as calls, sum(failed_count) as failed,
       round(100.0 * sum(cache_read_tokens) / nullif(sum(total_input_tokens), 0)) as cached_percent,
       round(sum(cost_micro_usd) / 1e6, 4) as usd
from turnledger.ai_usage where session_id like %(run)s
group by provider, model order by usd desc nulls last""",
    ),
    Question(
        "Which tools fail, and how often?",
        """\
select tool_name, origin, sum(call_count) as calls, sum(error_count) as errors, sum(denied_count) as denied,
       round(sum(total_duration_ms)::numeric / nullif(sum(call_count), 0)) as mean_ms
from turnledger.tool_usage where session_id like %(run)s
group by tool_name, origin order by errors desc, calls desc""",
    ),
    Question(
        "Why did turns stop, and are their records whole?",
        """\
select stop_why, grade, count(*) as turns, round(avg(round_trips), 1) as round_trips,
       round(avg(duration_ms) / 1000.0, 1) as seconds
from turnledger.turns where session_id like %(run)s
group by stop_why, grade order by turns desc""",
    ),
)


class LedgerView:
    """One connection for looking, in autocommit: it never holds a snapshot."""

    def __init__(self, database_url: str) -> None:
        self._link = psycopg.connect(
            database_url,
            autocommit=True,
            row_factory=dict_row,
            connect_timeout=10,
            application_name="turnledger-demo",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._link.close()

    def rows(self, sql: str, **values: Any) -> list[Row]:
        """The answer of ``sql``."""
        return self._link.execute(sql, values).fetchall()

    def account(self, topic: str) -> Account:
        """All records of the topic that were read so far."""
        (row,) = self.rows(
            """
            select coalesce(sum(records), 0)::int8 as records, coalesce(sum(accepted), 0)::int8 as accepted,
                   coalesce(sum(duplicates), 0)::int8 as duplicates, coalesce(sum(conflicts), 0)::int8 as conflicts,
                   coalesce(sum(dead), 0)::int8 as dead
            from turnledger.ingest_batches where topic = %(topic)s""",
            topic=topic,
        )
        return Account(**row)

    def last_commit(self, topic: str) -> datetime:
        """When the last batch was committed."""
        (row,) = self.rows(
            "select max(committed_at) as at from turnledger.ingest_batches where topic = %(topic)s",
            topic=topic,
        )
        at: datetime = row["at"]
        return at

    def now(self) -> datetime:
        """The database's clock, which also dates the commits."""
        (row,) = self.rows("select clock_timestamp() as at")
        at: datetime = row["at"]
        return at

    def sessions(self, run: str) -> list[Row]:
        """The sessions of a run as the rollup worker has them now."""
        return self.rows(
            """
            select session_id, agent, status, turn_count, model_call_count, failed_model_calls, total_tool_calls, tool_errors,
                   total_input_tokens, output_tokens, cost_micro_usd, unpriced_calls, usage_reported, usage_total,
                   open_gaps, conflicts, dead_letters, grade
            from turnledger.sessions where session_id like %(run)s order by session_id""",
            run=run,
        )

    def imported(self) -> list[Row]:
        """Imported sessions, the costliest first."""
        return self.rows(
            """
            select session_id, agent, models, turn_count, model_call_count, failed_model_calls, total_tool_calls, total_input_tokens,
                   output_tokens, cost_micro_usd, unpriced_calls, usage_reported, usage_total, created_at, grade
            from turnledger.sessions where kind = 'import' order by cost_micro_usd desc nulls last, session_id"""
        )

    def marks(self) -> int:
        """What the rollup worker has still to do."""
        (row,) = self.rows("select count(*) as marks from ledger.marks")
        return int(row["marks"])

    def gaps(self, run: str) -> list[Row]:
        """Gaps and what became of them."""
        return self.rows(
            """
            select session_id, stream, from_seq, to_seq, missing, state, opened_at, closed_at
            from turnledger.gaps where session_id like %(run)s order by session_id, from_seq""",
            run=run,
        )

    def conflicts(self, run: str) -> list[Row]:
        """Conflict receipts."""
        return self.rows(
            """
            select session_id, stream, seq, kept_sha256, lost_sha256, count, first_partition as partition, first_position as position
            from turnledger.conflicts where session_id like %(run)s order by session_id, seq""",
            run=run,
        )

    def dead_letters(self, topic: str, since: datetime) -> list[Row]:
        """Dead letters of this run. They may name no session, so time decides."""
        return self.rows(
            """
            select partition, position, session_id, reason, detail, raw_bytes
            from turnledger.dead_letters where topic = %(topic)s and recorded_at >= %(since)s order by recorded_at""",
            topic=topic,
            since=since,
        )
