"""No secret of a listed shape survives redaction, wherever it stands and however it is spelt (contract 14); the look before it misses none."""

from __future__ import annotations

import base64
import json
import random
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fixtures.leaks import IN_CONTEXT, SHAPES, Leak, leaks, secret_text
from turnledger.contract.canonical import dumps
from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected, read
from turnledger.contract.redact import Redactor
from turnledger.contract.shapes import hide, hide_bytes, suspicious
from turnledger.errors import TurnledgerError
from turnledger.fold.document import document
from turnledger.harness.numbering import LedgerError, Numbering
from turnledger.pricing import packaged, price_call

KEY = b"a key of the tests, 32 bytes long"
REDACTORS = [Redactor(), Redactor(slot_key=KEY), Redactor(slot_key=KEY, bodies=False)]
seeds = st.integers(0, 2**32)
shapes = st.sampled_from([*SHAPES, *IN_CONTEXT])


def texts(value: Any) -> list[str]:
    """Every text of plain data, names too; base64 also as what it holds."""
    if isinstance(value, dict):
        return [text for name, item in value.items() for text in (name, *texts(item))]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    if not isinstance(value, str):
        return []
    try:
        return [value, base64.b64decode(value, validate=True).decode("latin-1")]
    except ValueError:
        return [value]


def shown(leak: Leak, data: bytes) -> list[str]:
    """What of the secret can be read in JSON bytes."""
    everything = [*texts(json.loads(data)), data.decode("latin-1")]
    return [needle.decode() for needle in leak.needles if any(needle.decode() in text for text in everything)]


def stored(leak: Leak, redactor: Redactor) -> bytes | None:
    """What ingest would keep of a record."""
    if isinstance(read(leak.raw), Rejected):
        return None
    found = redactor.redact(leak.raw)
    return leak.raw if found is None else found.raw


@settings(max_examples=4, deadline=None)
@given(seeds, st.sampled_from(REDACTORS))
@example(0, REDACTORS[0])
def test_no_record_keeps_its_secret(seed: int, redactor: Redactor) -> None:
    for leak in leaks(seed):
        raw = stored(leak, redactor)
        assert (raw is not None) == leak.valid, leak.name
        if raw is None:
            kept = hide_bytes(leak.raw)
            plain = kept.decode("latin-1")
            assert not [n for n in leak.needles if n in kept or n.decode() in plain], (leak.name, kept)
            continue
        assert not shown(leak, raw), (leak.name, raw)
        assert redactor.redact(raw) is None, f"redacting {leak.name} twice is not redacting it once"
        assert isinstance(FastReader().read(raw), Event), leak.name


@settings(max_examples=2, deadline=None)
@given(seeds)
def test_a_batch_names_all_its_suspects(seed: int) -> None:
    records = list(leaks(seed))
    random.Random(seed).shuffle(records)
    ordinary = b'{"session_id":"s","seq":1,"type":"note","payload":{"text":"nothing"}}'
    values = [value for leak in records for value in (ordinary, leak.raw)]
    suspects = Redactor().suspects(values)
    assert suspects >= {2 * n + 1 for n, leak in enumerate(records) if leak.valid}
    assert not {n for n in suspects if n % 2 == 0}


@settings(max_examples=1, deadline=None)
@given(seeds)
def test_fold_shows_no_secret(seed: int) -> None:
    records = list(leaks(seed))
    told = dumps(
        document([leak.raw for leak in records if b"\n" not in leak.raw], partial(price_call, packaged()))
    )
    everything = "\n".join([*texts(json.loads(told)), told.decode()])
    assert not [leak.name for leak in records for needle in leak.needles if needle.decode() in everything]


SPELLINGS = {
    "as it is": lambda text: json.dumps(text),
    "UTF-8": lambda text: json.dumps(text, ensure_ascii=False),
    "escaped slashes": lambda text: json.dumps(text).replace("/", "\\/"),
    "all escapes": lambda text: '"' + "".join(f"\\u{ord(c):04x}" for c in text if ord(c) < 0x10000) + '"',
    "upper-case escapes": lambda text: '"' + "".join(f"\\u{ord(c):04X}" for c in text if ord(c) < 0x10000) + '"',
    "some escapes": lambda text: '"' + "".join(f"\\u{ord(c):04x}" if n % 5 == 3 else json.dumps(c)[1:-1] for n, c in enumerate(text) if ord(c) < 0x10000) + '"',
}  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(seeds, shapes, st.text(max_size=20), st.text(max_size=20), st.sampled_from(sorted(SPELLINGS)))
def test_the_look_before_sees_whatever_is_hidden(
    seed: int, shape: str, before: str, after: str, spelling: str
) -> None:
    text, _ = secret_text(random.Random(seed), shape)
    whole = before + text + after
    spelt = SPELLINGS[spelling](whole)
    if hide(json.loads(spelt)) != json.loads(spelt):
        assert suspicious(spelt), spelt


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="sk-AIzaghp_Bearer :=\"'\\/@.eyJ0123456789abcXYZ\n%20u", max_size=400))
def test_hiding_twice_is_hiding_once(text: str) -> None:
    hidden = hide(text)
    assert hide(hidden) == hidden
    if hidden is not text:
        assert suspicious(json.dumps(text))


@pytest.mark.parametrize(
    "piece",
    [
        "sk-",
        "sk-a-",
        '-----BEGIN PRIVATE KEY-----"',
        "eyJ-",
        "Bearer ",
        "://a:",
        "AKIA",
        "bearer=\\",
        "authorization: bearer ",
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    """Eight times the text takes about eight times as long, not sixty-four times."""
    import time

    def seconds(text: str) -> float:
        began = time.process_time()
        hide(text)
        return time.process_time() - began

    whole = (piece * (160_000 // len(piece))) + " sk-" + "aB3" * 10
    eighth = whole[len(whole) * 7 // 8 :]
    assert min(seconds(whole) for _ in range(3)) < 40 * min(seconds(eighth) for _ in range(3)), "not linear"


# --- errors for people ---


@settings(max_examples=25, deadline=None)
@given(seeds, shapes)
def test_no_error_says_a_secret(seed: int, shape: str) -> None:
    text, secret = secret_text(random.Random(seed), shape)
    said = [str(TurnledgerError(f"the sink {text} is no address"))]
    for attempt in (
        lambda: Numbering("s", redaction_key=KEY).event(text, {"x": object()}, {}),
        lambda: Numbering("s", redaction_key=KEY).event("note", {}, {"turn_id": text, "turn_index": -1}),
        lambda: Numbering("s", redaction_key=KEY).event("note", {}, {"occurred_at": text}),
        lambda: Numbering("s", redaction_key=KEY, kind=text).event("note", {}, {}),
    ):
        try:
            attempt()
        except LedgerError as error:
            said.append(str(error))
    assert not [one for one in said if secret[-16:] in one]


@settings(max_examples=15, deadline=None)
@given(seeds, shapes)
def test_the_publisher_lets_no_secret_leave(seed: int, shape: str) -> None:
    text, secret = secret_text(random.Random(seed), shape)
    numbering = Numbering("s", tenant=text[:100].strip() or "t", redaction_key=KEY)
    payload = {"text": text + " " + "x" * 70_000, "far": " " * (64 * 1024 - 8) + text, text[:40]: [text]}
    _, records = numbering.event("note", payload, {"turn_id": text})
    needles = Leak("", secret, b"", b"", True).needles
    for raw in records:
        assert not [
            n for n in needles if n in raw or any(n.decode() in one for one in texts(json.loads(raw)))
        ]
        assert Redactor(slot_key=KEY).redact(raw) is None, (
            "ingest finds something that the publisher let through"
        )
    assert not [n for n in needles if n in numbering.key]
