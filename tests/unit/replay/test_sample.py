"""The share of sessions that an audit folds anew, as a person types it."""

from __future__ import annotations

import pytest

from turnledger.errors import TurnledgerError
from turnledger.replay.sample import parse_rate


@pytest.mark.parametrize(("text", "share"), [("0.1%", 0.001), ("100%", 1.0), ("0.25", 0.25), ("1", 1.0)])
def test_a_rate_is_a_percentage_or_a_share(text: str, share: float) -> None:
    assert parse_rate(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["0", "0%", "101%", "1.5", "-1%", "much", ""])
def test_what_is_no_share_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(TurnledgerError, match=r"for example 0\.1%"):
        parse_rate(text)
