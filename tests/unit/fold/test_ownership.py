"""Calls seen in several sessions (contract 8): three ways of sameness, closed transitively, and one owner."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.contract.event import Event
from turnledger.fold.model import Row
from turnledger.fold.order import order_key
from turnledger.fold.ownership import Family, Holder, decide, holder, identities


def call(key: str, *, seq: int = 0, stream: str = "ledger", **known: Any) -> Row:
    """A row of model_calls that began at ``seq``; figures are all 10 in, 5 out unless given."""
    event = Event(session_id="-", type="model_call.completed", stream=stream, seq=seq)
    event.running = 0
    row: Row = {
        "call_key": key,
        "turn_key": None,
        "model_call_id": None,
        "message_id": None,
        "provider": "anthropic",
        "model": "claude",
        "kind": "live",
        "inherited_event": False,
        "least_at": None,
        "order_key": order_key(event),
        "input_uncached_tokens": 10,
        "cache_read_tokens": None,
        "cache_write_5m_tokens": None,
        "cache_write_1h_tokens": None,
        "cache_write_other_tokens": None,
        "total_input_tokens": None,
        "output_tokens": 5,
    }
    unknown = known.keys() - row.keys()
    assert not unknown
    return {**row, **known}


def owners(*holders: Holder) -> dict[tuple[str, str], str]:
    """The decision, proven not to depend on the order of sessions or rows."""
    decided = decide(holders)
    for order in list(permutations(holders))[:24]:
        turned = [
            Holder(
                one.session_id,
                one.parent_session_id,
                one.fork_parent_session_id,
                one.fork_stream,
                one.fork_at_seq,
                list(reversed(one.calls)),
            )
            for one in order
        ]
        again = decide(turned)
        assert again.owners == decided.owners
        assert sorted(map(repr, again.findings)) == sorted(map(repr, decided.findings))
    return decided.owners


# --- by message_id ----------------------------------------------------------------------------------------------------------------


def test_the_same_message_of_the_same_model_with_equal_input_is_one_call() -> None:
    held = owners(
        Holder("a", calls=[call("1", message_id="m")]), Holder("b", calls=[call("9", message_id="m")])
    )
    assert held == {("a", "1"): "a", ("b", "9"): "a"}


@pytest.mark.parametrize(
    "other",
    [
        {"message_id": "other"},
        {"message_id": None},
        {"message_id": "m", "provider": "openai"},
        {"message_id": "m", "model": "claude-2"},
        {"message_id": "m", "input_uncached_tokens": 11},
        {"message_id": "m", "input_uncached_tokens": None},  # no known input figure is equal
        {"message_id": "m", "output_tokens": 6},
    ],
)
def test_what_differs_or_has_nothing_equal_is_another_call(other: dict[str, Any]) -> None:
    assert (
        owners(Holder("a", calls=[call("1", message_id="m")]), Holder("b", calls=[call("1", **other)])) == {}
    )


def test_one_equal_input_figure_is_enough_where_none_differs() -> None:
    left = call("1", message_id="m", input_uncached_tokens=None, total_input_tokens=30, cache_read_tokens=20)
    right = call("1", message_id="m", input_uncached_tokens=10, total_input_tokens=30)
    assert owners(Holder("a", calls=[left]), Holder("b", calls=[right])) == {("a", "1"): "a", ("b", "1"): "a"}


def test_two_figures_that_disagree_beside_one_that_agrees_are_two_calls() -> None:
    left = call("1", message_id="m", total_input_tokens=30)
    right = call("1", message_id="m", total_input_tokens=31)
    assert owners(Holder("a", calls=[left]), Holder("b", calls=[right])) == {}


def test_an_unknown_output_does_not_differ() -> None:
    right = call("1", message_id="m", output_tokens=None)
    assert len(owners(Holder("a", calls=[call("1", message_id="m")]), Holder("b", calls=[right]))) == 2


@pytest.mark.parametrize("link", ["parent_session_id", "fork_parent_session_id"])
def test_a_descendant_may_have_seen_less_of_the_output(link: str) -> None:
    early, final = call("1", message_id="m", output_tokens=3), call("1", message_id="m", output_tokens=300)
    child = Holder("a", calls=[early], **{link: "p"})  # type: ignore[arg-type]
    assert owners(Holder("p", calls=[final]), child) == {("p", "1"): "p", ("a", "1"): "p"}


def test_two_descendants_of_one_parent_that_differ_in_output_are_not_joined_by_each_other() -> None:
    siblings = [
        Holder("b", parent_session_id="p", calls=[call("1", message_id="m", output_tokens=3)]),
        Holder("c", parent_session_id="p", calls=[call("1", message_id="m", output_tokens=4)]),
    ]
    assert owners(Holder("p"), *siblings) == {}


def test_sameness_is_closed_transitively() -> None:
    # b agrees with both neighbours; a and c alone share no figure
    a = call("1", message_id="m", input_uncached_tokens=10, output_tokens=None)
    b = call("1", message_id="m", input_uncached_tokens=10, total_input_tokens=30, output_tokens=None)
    c = call("1", message_id="m", input_uncached_tokens=None, total_input_tokens=30, output_tokens=None)
    held = owners(Holder("a", calls=[a]), Holder("b", calls=[b]), Holder("c", calls=[c]))
    assert held == {("a", "1"): "a", ("b", "1"): "a", ("c", "1"): "a"}


def test_two_calls_of_one_session_stay_two_where_their_copies_are_told_apart() -> None:
    def both() -> list[Row]:
        return [call("1", message_id="m"), call("2", message_id="m", input_uncached_tokens=70)]

    held = owners(Holder("a", calls=both()), Holder("b", calls=both()))
    assert held == {("a", "1"): "a", ("a", "2"): "a", ("b", "1"): "a", ("b", "2"): "a"}


# --- by fork ----------------------------------------------------------------------------------------------------------------------


def forked(*calls: Row, at_seq: int | None = 9, stream: str | None = None, parent: str = "p") -> Holder:
    return Holder(
        "f", fork_parent_session_id=parent, fork_at_seq=at_seq, fork_stream=stream, calls=list(calls)
    )


def test_a_fork_holds_what_its_parent_began_up_to_the_cut() -> None:
    before, after = (
        call("1", model_call_id="1", turn_key="t", seq=9),
        call("2", model_call_id="2", turn_key="t", seq=10),
    )
    copies = call("1", model_call_id="1", turn_key="t"), call("2", model_call_id="2", turn_key="t")
    held = owners(Holder("p", calls=[before, after]), forked(*copies))
    assert held == {("p", "1"): "p", ("f", "1"): "p"}


def test_a_fork_that_does_not_say_where_it_was_cut_shares_no_call_by_its_number() -> None:
    copy = call("1", model_call_id="1", turn_key="t")
    assert owners(Holder("p", calls=[dict(copy)]), forked(copy, at_seq=None)) == {}


def test_the_cut_counts_in_the_stream_that_it_names() -> None:
    source, copy = (
        call("1", model_call_id="1", turn_key="t", stream="file:a"),
        call("1", model_call_id="1", turn_key="t"),
    )
    assert owners(Holder("p", calls=[source]), forked(copy)) == {}
    assert len(owners(Holder("p", calls=[source]), forked(copy, stream="file:a"))) == 2


def test_by_fork_no_message_id_may_differ() -> None:
    source = call("1", model_call_id="1", turn_key="t", message_id="m")
    other = call("1", model_call_id="1", turn_key="t", message_id="n")
    without = call("1", model_call_id="1", turn_key="t", input_uncached_tokens=77)
    assert owners(Holder("p", calls=[source]), forked(other)) == {}
    assert len(owners(Holder("p", calls=[source]), forked(without))) == 2


def test_the_number_alone_is_enough_where_each_side_has_it_once() -> None:
    source = call("1", model_call_id="1", turn_key="t1")
    copy = call("1", model_call_id="1", turn_key="renamed")
    twice = call("2", model_call_id="1", turn_key="t2")
    assert len(owners(Holder("p", calls=[source]), forked(copy))) == 2
    assert owners(Holder("p", calls=[source, twice]), forked(copy)) == {}


def test_c5b_a_sub_agent_counts_its_calls_from_1_like_its_parent() -> None:
    parent = Holder("p", calls=[call(k, model_call_id=k, turn_key="t") for k in ("1", "2")])
    child = Holder(
        "sub", parent_session_id="p", calls=[call(k, model_call_id=k, turn_key="t") for k in ("1", "2")]
    )
    assert owners(parent, child) == {}


def test_a_fork_of_a_fork_holds_its_grandparents_calls_up_to_the_first_cut() -> None:
    source = [
        call("1", model_call_id="1", turn_key="t", seq=3),
        call("2", model_call_id="2", turn_key="t", seq=5),
    ]
    middle = Holder("f1", fork_parent_session_id="p", fork_at_seq=4)
    last = Holder(
        "f2",
        fork_parent_session_id="f1",
        fork_at_seq=100,
        calls=[call("1", model_call_id="1", turn_key="t"), call("2", model_call_id="2", turn_key="t")],
    )
    assert owners(Holder("p", calls=source), middle, last) == {("p", "1"): "p", ("f2", "1"): "p"}


# --- by an inherited event --------------------------------------------------------------------------------------------------------


def test_an_inherited_event_names_its_source_by_message_id() -> None:
    source = call("1", message_id="m", input_uncached_tokens=700)
    copy = call(
        "1", message_id="m", inherited_event=True, model=None, provider=None, input_uncached_tokens=None
    )
    held = owners(Holder("z", calls=[source]), Holder("a", calls=[copy]))
    assert held == {("z", "1"): "z", ("a", "1"): "z"}


def test_an_inherited_event_without_message_id_names_its_source_in_the_parent_alone() -> None:
    source = call("1", model_call_id="1", turn_key="t")
    copy = call("1", model_call_id="1", turn_key="t", inherited_event=True)
    assert len(owners(Holder("p", calls=[source]), Holder("c", parent_session_id="p", calls=[copy]))) == 2
    assert owners(Holder("p", calls=[source]), Holder("c", parent_session_id="elsewhere", calls=[copy])) == {}


def test_a_sole_inherited_holder_owns_the_call_and_a_finding_says_so() -> None:
    decided = decide([Holder("a", calls=[call("1", message_id="m", turn_key="t", inherited_event=True)])])
    assert decided.owner("a", "1") == "a"
    assert decided.findings == [
        (
            "a",
            {
                "check": "inherited_without_source",
                "severity": "warning",
                "row": {"turn_key": "t", "model_call_id": None, "message_id": "m"},
            },
        )
    ]


# --- the owner --------------------------------------------------------------------------------------------------------------------


def message(**known: Any) -> Row:
    return call("1", message_id="m", **known)


def owner_of(*holders: Holder) -> str:
    (owner,) = set(owners(*holders).values())
    return owner


def test_not_eval_comes_before_everything_else() -> None:
    assert (
        owner_of(
            Holder("a", calls=[message(kind="eval", least_at=1)]),
            Holder("b", fork_parent_session_id="a", calls=[message(inherited_event=True, least_at=9)]),
        )
        == "b"
    )


def test_not_inherited_comes_before_ancestors() -> None:
    assert (
        owner_of(
            Holder("a", calls=[message(inherited_event=True, least_at=1)]),
            Holder("b", fork_parent_session_id="a", calls=[message(least_at=9)]),
        )
        == "b"
    )


@pytest.mark.parametrize("link", ["parent_session_id", "fork_parent_session_id"])
def test_ancestors_come_before_times(link: str) -> None:
    child = Holder("a", calls=[message(least_at=1)], **{link: "z"})  # type: ignore[arg-type]
    assert owner_of(Holder("z", calls=[message(least_at=9)]), child) == "z"


def test_descent_goes_through_sessions_that_hold_nothing() -> None:
    assert (
        owner_of(
            Holder("z", calls=[message(least_at=9)]),
            Holder("y", parent_session_id="z"),
            Holder("a", fork_parent_session_id="y", calls=[message(least_at=1)]),
        )
        == "z"
    )


def test_the_least_time_then_the_session_id_decide_between_strangers() -> None:
    assert owner_of(Holder("a", calls=[message(least_at=2)]), Holder("b", calls=[message(least_at=1)])) == "b"
    assert (
        owner_of(Holder("a", calls=[message(least_at=None)]), Holder("b", calls=[message(least_at=1)])) == "b"
    )
    assert owner_of(Holder("b", calls=[message(least_at=1)]), Holder("a", calls=[message(least_at=1)])) == "a"


def test_an_edge_in_a_cycle_is_void_and_a_finding() -> None:
    ring = [
        Holder("a", fork_parent_session_id="b", calls=[message(least_at=9)]),
        Holder("b", parent_session_id="a", calls=[message(least_at=5)]),
        Holder("c", parent_session_id="b", calls=[message(least_at=1)]),
    ]
    assert owner_of(*ring) == "b"  # c still descends from b; a and b are strangers, b is earlier
    assert decide(ring).findings == [
        ("a", {"check": "fork_cycle", "severity": "error", "row": {"parent_session_id": "b"}}),
        ("b", {"check": "fork_cycle", "severity": "error", "row": {"parent_session_id": "a"}}),
    ]


def test_an_edge_between_two_cycles_holds() -> None:
    family = Family(
        [
            Holder("a", parent_session_id="b"),
            Holder("b", parent_session_id="a"),
            Holder("c", parent_session_id="d", fork_parent_session_id="a"),
            Holder("d", parent_session_id="c"),
        ]
    )
    assert family.void == [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]
    assert family.ancestors("c") == {"a"}


def test_c5_a_fork_copied_by_message_ids_and_resumed_twice() -> None:
    def copies() -> list[Row]:
        return [call(f"k{n}", message_id=f"m{n}", input_uncached_tokens=n) for n in (10, 20, 30)]

    own = call("k5", message_id="m5", input_uncached_tokens=5)
    held = owners(
        Holder("p", calls=copies()),
        Holder("f", fork_parent_session_id="p", calls=[*copies(), own]),
        Holder("r1", fork_parent_session_id="f", calls=[*copies(), dict(own)]),
        Holder("r2", fork_parent_session_id="r1", calls=[*copies(), dict(own)]),
    )
    assert {session for (_, key), session in held.items() if key != "k5"} == {"p"}
    assert {session for (_, key), session in held.items() if key == "k5"} == {"f"}


# --- identities -------------------------------------------------------------------------------------------------------------------


def test_what_is_the_same_shares_an_identity() -> None:
    left = identities("t", call("1", message_id="m", model_call_id="7"), ["p"])
    assert len(left) == 2
    assert left == sorted(left)
    assert len(set(left) & set(identities("t", call("2", message_id="m"), []))) == 1
    assert len(set(left) & set(identities("t", call("2", model_call_id="7"), ["p", "f"]))) == 1


def test_other_tenants_and_other_parents_share_none() -> None:
    left = set(identities("t", call("1", message_id="m", model_call_id="7"), ["p"]))
    assert not left & set(identities("u", call("1", message_id="m", model_call_id="7"), ["p"]))
    assert not left & set(identities("t", call("1", model_call_id="7"), ["q"]))
    assert identities("t", call("1", model_call_id="7"), []) == []


def test_a_holder_is_made_from_the_facts_of_its_session() -> None:
    made = holder("f", {"fork_parent_session_id": "p", "fork_at_seq": 3, "name": "x"}, [])
    assert made == Holder("f", fork_parent_session_id="p", fork_at_seq=3)


CALLS = st.lists(
    st.tuples(
        st.integers(0, 4),  # seq
        st.sampled_from([None, "m1", "m2"]),
        st.sampled_from([None, "c1", "c2"]),
        st.sampled_from([None, "t1", "t2"]),
        st.booleans(),
        st.sampled_from([5, 6]),
    ),
    max_size=4,
)


@given(
    calls=st.lists(CALLS, min_size=1, max_size=3),
    parents=st.lists(st.sampled_from([None, "s0", "s1", "s2"]), min_size=3, max_size=3),
    forks=st.lists(st.sampled_from([None, "s0", "s1", "s2"]), min_size=3, max_size=3),
    cut=st.integers(0, 4),
)
def test_a_call_without_an_identity_in_another_session_decides_nothing(
    calls: list[Any], parents: list[str | None], forks: list[str | None], cut: int
) -> None:
    """What ``verify`` leaves out where it decides a family (``verify/deciding.sql``)."""
    holders = [
        Holder(
            f"s{at}",
            parents[at],
            forks[at],
            None,
            cut,
            [
                call(
                    f"{at}-{n}",
                    seq=seq,
                    message_id=message,
                    model_call_id=call_id,
                    turn_key=turn,
                    inherited_event=inherited,
                    output_tokens=output,
                )
                for n, (seq, message, call_id, turn, inherited, output) in enumerate(of_session)
            ],
        )
        for at, of_session in enumerate(calls)
    ]

    def shared(name: str) -> set[Any]:
        held: dict[Any, set[str]] = {}
        for one in holders:
            for row in one.calls:
                held.setdefault(row[name], set()).add(one.session_id)
        return {found for found, sessions in held.items() if found is not None and len(sessions) > 1}

    messages, call_ids = shared("message_id"), shared("model_call_id")
    fewer = [
        replace(
            one,
            calls=[
                row
                for row in one.calls
                if row["inherited_event"] or row["message_id"] in messages or row["model_call_id"] in call_ids
            ],
        )
        for one in holders
    ]
    decided, again = decide(holders), decide(fewer)
    assert again.owners == decided.owners
    assert again.findings == decided.findings
