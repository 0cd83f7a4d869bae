"""Owns what a secret looks like in a text, and the reference that stands in its place (contract 14). Pure; where each shape is from: docs/redaction.md.

Two steps. ``suspicious`` asks in 0.1 µs a kilobyte whether there can be any shape in a piece of JSON text at all; it may be wrong one way only. ``hide``
decides, and costs a hundred times as much.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256

from pydantic_core import SchemaValidator, core_schema

DIGEST = 12
"""Hex digits of a digest in a reference, as in ``hash:``: enough to see that two are equal, too few to hold a secret."""
_DOMAIN = b"turnledger.credential.v1\0"
REFERENCE = re.compile(r"credential:[a-z0-9_]{1,32}(?::[0-9a-f]{12,64})?")
"""What stands for a secret; also the references that harnesses make, which are left alone."""

_TOKEN = "A-Za-z0-9_-"
_TAIL = f"[{_TOKEN}]"

KEYS: tuple[tuple[str, str], ...] = (
    ("anthropic", rf"sk-ant-{_TAIL}{{16,}}"),
    ("openrouter", rf"sk-or-{_TAIL}{{16,}}"),
    ("langfuse", rf"sk-lf-{_TAIL}{{16,}}"),
    ("openai", rf"sk-(?:proj|svcacct|admin|service|None)-{_TAIL}{{16,}}"),
    ("sk", rf"sk-{_TAIL}{{16,}}"),
    ("google", rf"AIza{_TAIL}{{30,}}"),
    ("google_oauth", rf"ya29\.{_TAIL}{{20,}}"),
    ("google_client", rf"GOCSPX-{_TAIL}{{20,}}"),
    ("github", r"gh[pousr]_[A-Za-z0-9]{20,}"),
    ("github_pat", r"github_pat_[A-Za-z0-9_]{20,}"),
    ("gitlab", rf"gl(?:pat|ptt|dt|rt|cbt|soat|ft)-{_TAIL}{{20,}}"),
    ("slack", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("slack_app", r"xapp-[A-Za-z0-9-]{20,}"),
    ("aws", r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("stripe", r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    ("npm", r"npm_[A-Za-z0-9]{30,}"),
    ("pypi", rf"pypi-{_TAIL}{{50,}}"),
    ("huggingface", r"hf_[A-Za-z0-9]{30,}"),
    ("groq", r"gsk_[A-Za-z0-9]{40,}"),
    ("xai", r"xai-[A-Za-z0-9]{40,}"),
    ("perplexity", r"pplx-[A-Za-z0-9]{40,}"),
    ("replicate", r"r8_[A-Za-z0-9]{30,}"),
    ("nvidia", rf"nvapi-{_TAIL}{{40,}}"),
    ("tavily", r"tvly-[A-Za-z0-9-]{20,}"),
    ("langsmith", r"lsv2_(?:pt|sk)_[0-9a-f_]{30,}"),
    ("databricks", r"dapi[0-9a-f]{32}"),
    ("digitalocean", r"do[opr]_v1_[0-9a-f]{60,}"),
    ("sendgrid", rf"SG\.{_TAIL}{{20,}}\.{_TAIL}{{20,}}"),
    ("shopify", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("linear", r"lin_api_[A-Za-z0-9]{30,}"),
    ("tailscale", r"tskey-[A-Za-z0-9-]{20,}"),
    ("vault", rf"hv[sb]\.{_TAIL}{{20,}}"),
    ("age", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    ("jwt", rf"eyJ{_TAIL}{{8,}}(?:\.{_TAIL}{{8,}})*"),
)
"""(kind, pattern) of keys that are known by how they begin. Of two that fit, the first names it."""

_SEPARATOR = r"(?:[\s\"'=:\\]|%20|%22|%3[aA]|\+){1,8}"
_LOOSE = r"[A-Za-z0-9_.~+/=-]"
SECRET_NAMES = (
    r"(?:x-(?:goog-)?api-key|x-auth-token|private-token|(?:access|refresh)_token|client_secret|bearer)"
)
"""Names whose value is a secret, in a text or as a field."""

# A key begins where no word goes on: at the start, after a sign, and after what only looks like a letter (percent and JSON escapes, the end of a
# terminal's colour code).
_START = r"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4})|(?<=[0-9\[]m))"
_PARTS = (
    rf"{_START}(?P<key>{'|'.join(pattern for _, pattern in KEYS)})",
    rf"{_START}(?i:authorization){_SEPARATOR}(?i:(?:bearer|basic|token|apikey|negotiate)(?:\s|%20|\+)+)(?P<authorization>[^\s\"'\\,;]{{6,}})",
    rf"{_START}(?i:{SECRET_NAMES}){_SEPARATOR}(?P<token>{_LOOSE}{{12,}})",
    r"(?i:secret_?access_?key)" + _SEPARATOR + r"(?P<aws_secret>[A-Za-z0-9/+=]{40})(?![A-Za-z0-9/+=])",
    r"://[^\s/?#\"'\\@:]*:(?P<password>[^\s/?#\"'\\@]+)@",
)
_SECRET = re.compile("|".join(_PARTS))
_SCHEME = re.compile(r"(?i:bearer|basic)")
_LITERALS = (
    "sk-", "AIza", "ya29.", "GOCSPX-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "glptt-", "gldt-", "glrt-", "glcbt-",
    "glsoat-", "glft-", "xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-", "AKIA", "ASIA", "sk_", "rk_", "npm_", "pypi-",
    "hf_", "gsk_", "xai-", "pplx-", "r8_", "nvapi-", "tvly-", "lsv2_", "dapi", "doo_v1_", "dop_v1_", "dor_v1_", "SG.", "shpat_", "shpca_",
    "shppa_", "shpss_", "lin_api_", "tskey-", "hvs.", "hvb.", "AGE-SECRET-KEY-1", "eyJ", "://",
)  # fmt: skip
_WORDS = (
    "authorization", "bearer", "x-api-key", "x-goog-api-key", "x-auth-token", "private-token", "access_token", "refresh_token", "client_secret",
    "secretaccess", "secret_access",
)  # fmt: skip
"""How every alternative of ``_SECRET`` begins, in any case of letters: to look for 60 texts one by one is ten times as fast as for the pattern."""
_ANY_CASE = re.compile(f"(?i:{'|'.join(_WORDS)})")
_KINDS = tuple((kind, re.compile(pattern)) for kind, pattern in KEYS)

_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_REST = re.compile(r"[A-Za-z0-9+/=\s\\:,.-]*")
_LONGEST_KEY = 1 << 16

_SEEN = (
    # How every key begins. More literals in one pattern are slower than two patterns: beyond some forty the engine looks for none of them first.
    rf"(?-u:sk-{_TAIL}{{16}}|AIza{_TAIL}{{30}}|gh[pousr]_[A-Za-z0-9]{{20}}|github_pat_|eyJ{_TAIL}{{8}}|AKIA[A-Z0-9]{{16}}|ASIA[A-Z0-9]{{16}}|PRIVATE KEY)",
    r"(?-u:xox[abeoprs]-|xapp-|[rs]k_live_|[rs]k_test_|npm_|pypi-|gsk_|xai-|pplx-|nvapi-|tvly-|lsv2_|dapi|SG\.|lin_api_|tskey-|AGE-SECRET-KEY-|ya29\.|GOCSPX-)",
    r"(?-u:gl(?:pat|ptt|dt|rt|cbt|soat|ft)-|do[opr]_v1_|shp(?:at|ca|pa|ss)_|hf_|r8_|hv[sb]\.)",
    r"(?-u:(?i:authorization)|(?i:bearer))",
    # The ends of SECRET_NAMES. In any case of letters, each text is many: few at a time.
    r"(?-u:(?i:s_token|h_token|h-token|e-token))",
    r"(?-u:(?i:api-key)|(?i:client_secret))",
    r"(?-u:(?i:secret_?access))",
    # A character of a secret, spelt as an escape: nobody knows what it spells before it is read. (`<`, `>`, `&` and quotes, which some encoders
    # spell so, are part of none.)
    r"(?-u:\\u00(?:2[05bBdDeEfF]|3[0-9aAdD]|[4-7][0-9a-fA-F]))",
    r":(?:/|\\/){2}[^\s/?#\"@:]*:[^\s/?#\"@]+@",
)

_BLOB = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text holds a match. The regex engine is the one that pydantic brings: it looks for all alternatives at once, 100 times as fast as ``re``."""
    return SchemaValidator(
        core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
    ).isinstance_python


_SEEN_BY = tuple(matcher(pattern) for pattern in _SEEN)
_SEEN_AT_ONCE = matcher("|".join(_SEEN))
_SHORT = 256
"""Characters up to which one slow pattern is faster than nine fast ones."""
_PLAIN = bytes(byte if byte < 128 else ord("x") for byte in range(256))
"""Other bytes than ASCII are no part of a shape, and text of ASCII alone is not encoded once more for the engine."""


def plain(data: bytes) -> str:
    """Bytes as text for a ``matcher``: what is not ASCII becomes a letter."""
    return (data if data.isascii() else data.translate(_PLAIN)).decode("ascii")


def suspicious(text: str) -> bool:
    """Whether JSON text, or a text out of it, may hold a secret by shape. Never false where ``hide`` would change what it says."""
    if not text.isascii():
        text = plain(text.encode("utf-8", "surrogatepass"))
    if len(text) <= _SHORT:
        return _SEEN_AT_ONCE(text)
    return any(seen(text) for seen in _SEEN_BY)


def reference(kind: str, secret: str) -> str:
    """What stands for a secret: equal for equal secrets of one kind. Not keyed: who holds a guess can confirm it, so weak secrets get no digest."""
    return (
        f"credential:{kind}:{sha256(_DOMAIN + secret.encode('utf-8', 'surrogatepass')).hexdigest()[:DIGEST]}"
    )


def kind_of(secret: str) -> str | None:
    """Which key it is, by how it begins."""
    return next((kind for kind, pattern in _KINDS if pattern.match(secret)), None)


def hide(text: str, found: Counter[str] | None = None) -> str:
    """The text with references in place of secrets; the same object where there are none. ``found`` counts them by kind."""
    if not suspicious(text):
        return text
    counter: Counter[str] = Counter() if found is None else found
    hidden = _hide_private_keys(text, counter) if "PRIVATE KEY" in text else text
    return _hide_tokens(hidden, counter)


def hide_bytes(raw: bytes, found: Counter[str] | None = None) -> bytes:
    """The same for bytes that need be neither JSON nor UTF-8. Where escapes (``\\u0041``) spell a secret, they are resolved first."""
    text = raw.decode("latin-1")
    hidden = hide(text, found)
    if "\\u00" in hidden:
        spelt = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), hidden)
        again = hide(spelt, found)
        hidden = hidden if again is spelt else again
    return raw if hidden is text else hidden.encode("latin-1")


_ESCAPED = re.compile(r"\\u00([2-7][0-9a-fA-F])")


def is_secret_value(value: str) -> bool:
    """Whether the value of a field with one of ``SECRET_NAMES`` is more than a word."""
    return _is_token(value) and not any(char.isspace() for char in value)


def _replaced(match: re.Match[str], found: Counter[str]) -> str | None:
    """What stands for a match; None where it is no secret after all."""
    group = match.lastgroup
    assert group is not None
    secret = match[group]
    kind: str | None = None
    if group == "key":
        kind = kind_of(secret)
        if kind is None or not _is_key(kind, secret) or _inside_blob(match.string, match.start(group)):
            return None
    elif group == "authorization":
        strong = _is_token(secret)
        if (
            secret[0] in "$<{*%"
            or REFERENCE.match(secret)
            or not any(c.islower() or c.isdigit() for c in secret)
            or not (strong or _SCHEME.search(match[0]))
        ):
            return None
        kind = kind_of(secret) or (
            "token" if strong and "asic" not in match[0][: -len(secret)].lower() else None
        )
    elif group == "token":
        if not _is_token(secret):
            return None
        kind = kind_of(secret) or group
    elif group == "password":
        if secret[0] in "$<{*%" or REFERENCE.fullmatch(secret):
            return None
    else:
        kind = group
    found[kind or group] += 1
    # A password, or what Basic holds, may be guessed: a digest would confirm the guess.
    said = f"credential:{group}" if kind is None else reference(kind, secret)
    start, end = match.span(group)
    at = match.start()
    return match[0][: start - at] + said + match[0][end - at :]


def _is_key(kind: str, secret: str) -> bool:
    if kind == "jwt":
        parts = secret.split(".")
        return len(parts) >= 3 and (len(parts) == 5 or parts[1].startswith("eyJ"))
    if kind == "sk":
        # ``sk-`` also begins words that are joined by hyphens: a key has a long part, or letters of both sizes and digits.
        return any(len(part) >= 16 for part in re.split("[_-]", secret[3:])) or (
            any(c.isdigit() for c in secret) and any(c.isupper() for c in secret)
        )
    return True


def _is_token(secret: str) -> bool:
    """More than words: a digit in it, or letters that no word has so many of."""
    return len(secret) >= 12 and (
        any(c.isdigit() for c in secret) or any(len(part) >= 20 for part in re.split(r"[^A-Za-z]", secret))
    )


def _inside_blob(text: str, start: int) -> bool:
    """Whether the 64 characters before are of a long base64 run: there, every beginning of a key turns up by chance."""
    before = text[max(0, start - 64) : start]
    return (
        len(before) == 64
        and before[-1] in "+/-_"
        and all(char in _BLOB for char in before)
        and sum(char.isupper() for char in before) >= 8
        and sum(char.islower() for char in before) >= 8
        and sum(char.isdigit() for char in before) >= 4
    )


def _hide_tokens(text: str, found: Counter[str]) -> str:
    """The same object where nothing is hidden. What was looked at once is not looked at again: a text made to be slow is read in one pass."""
    out: list[str] = []
    done = 0
    looked = 0
    for begin in _beginnings(text):
        if begin < looked:
            continue
        match = _SECRET.match(text, begin)
        if match is None:
            continue
        looked = match.end()
        new = _replaced(match, found)
        if new is not None:
            out += (text[done : match.start()], new)
            done = looked
    return text if not out else "".join((*out, text[done:]))


def _beginnings(text: str) -> list[int]:
    """Where a secret may begin, in order."""
    found = _places(_LITERALS, text)
    lower = text.lower()
    if len(lower) == len(text):
        found += _places(_WORDS, lower)
    else:  # a letter that has two in lower case: the places would be others
        found += [match.start() for match in _ANY_CASE.finditer(text)]
    found.sort()
    return found


def _places(literals: Sequence[str], text: str) -> list[int]:
    found: list[int] = []
    for literal in literals:
        at = text.find(literal)
        while at >= 0:
            found.append(at)
            at = text.find(literal, at + 1)
    return found


def _hide_private_keys(text: str, found: Counter[str]) -> str:
    """Whole blocks; of one whose end was cut off, all that can be part of it."""
    ends = [match.end() for match in _END.finditer(text)]
    out: list[str] = []
    done = 0
    for begin in _BEGIN.finditer(text):
        if begin.start() < done:
            continue
        after = bisect_left(ends, begin.end())
        if after < len(ends) and ends[after] - begin.start() <= _LONGEST_KEY:
            end = ends[after]
        else:
            rest = _REST.match(text, begin.end())
            end = rest.end() if rest is not None else begin.end()
        out += (text[done : begin.start()], reference("private_key", text[begin.start() : end]))
        found["private_key"] += 1
        done = end
    return text if not out else "".join((*out, text[done:]))
