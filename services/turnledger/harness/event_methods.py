"""Owns the generation of ``harness.typed``: one method for each event type, from the payload models of the contract.

``python -m turnledger.harness.event_methods`` writes it; a test says whether it is stale.
"""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from turnledger.contract.payloads import Fields, Payload, Usage
from turnledger.contract.types import EVENT_TYPES

PATH = Path(__file__).with_name("typed.py")
NOT_HARNESSES = ("redactions",)
"""Written by publishers and ingest."""
CORRELATION = {
    "turn_id": ("str", "The turn."),
    "model_call_id": ("str", "The model call."),
    "tool_call_id": ("str", "The tool call."),
    "trace_id": ("str", "The causal chain."),
    "event_id": ("str", "The harness's own id of the event, to join within the session."),
    "parent_session_id": ("str", "The session that this one comes from."),
    "turn_index": ("int", "Order of the turn in its session, from 0."),
    "origin": ("Mapping[str, Any]", "Who did it: scalars by name."),
    "provenance": ('Literal["observed", "derived", "inherited", "claimed"]', "Absent: observed."),
    "occurred_at": ("str", "RFC 3339 with an offset. Absent: now."),
}
HEAD = '''"""One method for each event type of the contract (section 6). Generated: `python -m turnledger.harness.event_methods` writes this file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack

R = TypeVar("R", covariant=True)
"""What ``emit`` gives: the event's number, or something to wait for it."""


def _said(more: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are known; ``more`` are fields of the harness's own."""
    return {**(more or {}), **{name: value for name, value in fields.items() if value is not None}}

'''


def source() -> str:
    """The module's text, before it is formatted."""
    out = [HEAD, _typed_dict("Counters", "Token counters as the provider sent them: one that is absent is unknown, not zero.", {
        name: (_annotation(get_type_hints(Usage)[name]), field.description or "") for name, field in Usage.model_fields.items()
    })]  # fmt: skip
    about = {name: (f"{annotation} | None", said) for name, (annotation, said) in CORRELATION.items()}
    out.append(_typed_dict("About", "What an event is about (contract 2): fields of its envelope.", about))
    without = {name: said for name, said in about.items() if name != "parent_session_id"}
    out.append(_typed_dict("AboutFork", "The same for ``session.forked``, whose payload has the parent.", without))  # fmt: skip
    out.append(
        "class Telling(Generic[R]):\n"
        '    """A method for each event type, with the fields of its payload. ``more`` takes fields of its own, the rest what it is about.\n\n'
        "    Each gives what ``emit`` gives, and raises what that raises. A field that is None is left out: absent and null are the same (contract 6).\n"
        '    """\n\n'
        "    @abstractmethod\n"
        "    def emit(self, type: str, payload: Mapping[str, Any] | None = None, **about: Any) -> R:\n"
        '        """Number an event and hand it on."""\n'
    )
    out += [_method(kind, model) for kind, model in EVENT_TYPES.items()]
    return "\n".join(out)


def _typed_dict(name: str, about: str, fields: dict[str, tuple[str, str]]) -> str:
    lines = [f"class {name}(TypedDict, total=False):", f'    """{about}"""', ""]
    for field, (annotation, said) in fields.items():
        lines += [f"    {field}: {annotation}", f'    """{said}"""']
    return "\n".join([*lines, "", ""])


def _method(kind: str, model: type[Payload]) -> str:
    hints = get_type_hints(model)
    fields = {name: field for name, field in model.model_fields.items() if name not in NOT_HARNESSES}
    needed = [f"{name}: {_annotation(hints[name])}" for name, field in fields.items() if field.is_required()]
    rest = [
        f"{name}: {_optional(_annotation(hints[name]))} = None"
        for name, field in fields.items()
        if not field.is_required()
    ]
    about = "AboutFork" if "parent_session_id" in fields else "About"
    taken = ", ".join(f'"{name}": {name}' for name in fields)
    summary = " ".join((model.__doc__ or "").split())
    lines = [f"{name}: {fields[name].description}" for name in fields if fields[name].description]
    body = "\n".join(f"        {line}" for line in lines)
    return (
        f"    def {kind.replace('.', '_')}(self, *, {''.join(each + ', ' for each in (*needed, *rest))}"
        f"more: Mapping[str, Any] | None = None, **about: Unpack[{about}]) -> R:\n"
        f'        """``{kind}``: {summary}\n\n{body}\n        """\n'
        f'        return self.emit("{kind}", _said(more, {{{taken}}}), **about)\n'
    )


def _optional(annotation: str) -> str:
    return annotation if annotation == "Any" or annotation.endswith("| None") else f"{annotation} | None"


def _annotation(hint: Any) -> str:
    """A type as a caller gives it, without None."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        parts = [_annotation(each) for each in get_args(hint) if each is not type(None)]
        return " | ".join(dict.fromkeys(parts))
    if origin is Literal:
        return f"Literal[{', '.join(chr(34) + word + chr(34) for word in get_args(hint))}]"
    if origin is list:
        return "list[Any]"
    if origin is dict or hint is dict:
        return "Mapping[str, Any]"
    if hint is Any:
        return "Any"
    if isinstance(hint, type) and issubclass(hint, Fields):
        return "Counters"
    name: str = hint.__name__
    return name


def main() -> int:
    """Write the module."""
    PATH.write_text(source())
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", str(PATH)], check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
