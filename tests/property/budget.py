"""How many examples a property gets: its share in CI, or a multiple of it for a long campaign.

`HYPOTHESIS_PROFILE=deep` takes twenty times the share; `TURNLEDGER_EXAMPLES=5` (`make properties EXAMPLES=5`) five times.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

DEEP: Final = 20


def times() -> float:
    given = os.environ.get("TURNLEDGER_EXAMPLES")
    if given:
        return float(given)
    return DEEP if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 1


def share(examples: int) -> settings:
    """Settings with that many examples in CI."""
    return settings(
        max_examples=max(1, round(examples * times())),
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
