"""Why a finding may be so, and what to look at next. One module a group of checks; every check of contract 13 has a reason here.

A reason is made of the evidence: figures, names and times of the session that is looked at. Where nothing tells two causes apart, it names both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from turnledger.doctor.findings import Evidence, Explain, Finding, Reason
from turnledger.doctor.why import calls, delivery, projection, reading, session, tools, turns, usage

REASONS: Final[Mapping[str, Explain]] = {
    **delivery.REASONS,
    **reading.REASONS,
    **turns.REASONS,
    **calls.REASONS,
    **usage.REASONS,
    **tools.REASONS,
    **projection.REASONS,
    **session.REASONS,
}
"""By the name of the check, in the order in which people read them: how it came, what it says, what was made of it."""


def explain(finding: Finding, evidence: Evidence) -> Reason:
    """The reason of a finding. A check that a newer version wrote is shown all the same."""
    known = REASONS.get(finding.check)
    if known is None:
        return Reason(
            f"this version of turnledger does not know the check {finding.check!r}",
            "see its rows; a newer version wrote it",
        )
    return known(finding, evidence)
