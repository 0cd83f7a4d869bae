"""Owns following: a file that is due is read, sent, and kept as told when it has arrived, not before. Effects (the sink, the clock, the folders) are passed in.

One file is read by one lane at a time. Memory holds a line about each file, and of what is being read one batch: what does not go out stays in the files.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from turnledger.contract.redact import Redactor
from turnledger.errors import TurnledgerError
from turnledger.harness.format import Anew
from turnledger.harness.importer import Begun
from turnledger.harness.outlets import Outlet, OutletAway
from turnledger.ship import discovery, growing
from turnledger.ship.followed import FIRST_RETRY, LONGEST_RETRY, Followed
from turnledger.ship.growing import Look
from turnledger.ship.hints import Hints
from turnledger.ship.keeping import Keeping, wait
from turnledger.ship.reading import Batch, Choices, Reading, Torn
from turnledger.ship.roll import AFTER_CHANGE, Roll
from turnledger.ship.settings import ShipSettings
from turnledger.ship.state import Checkpoint, State, StateAway
from turnledger.ship.way import Way

GOING_ON = 64 * 1024
"""Files above this go on from where their last reading ended, where their format can."""
MOST_BEGUN = 64
"""Of so many files it is remembered how to go on: some 300 bytes a line of each."""
MOST_DOUBTS = 3
"""So many times a look is waited for where a path has another file: one that is replaced all the time is read all the same."""
SHARE = 4
"""A file is not read again before this many times what its last reading took: one that never rests costs at most a fifth of a core."""
LOOKS_SHARE = 20
"""Folders are not looked through again before this many times what the last look took."""
STUCK = 300.0
"""Seconds without an end of any reading after which something is wrong; the greatest document takes a tenth of that."""
STOP_SECONDS = 8.0
"""What the batches that are under way get when ship is told to end."""

log = logging.getLogger("turnledger.ship")


class Moved(Exception):
    """Another file has the path by now: a look says whether the one that was followed stands elsewhere, before this one is taken for it."""


class Follower:
    """Follows folders until ``stop`` is set."""

    def __init__(
        self,
        folders: Sequence[Path],
        state: State,
        make_outlet: Callable[[], Outlet],
        *,
        settings: ShipSettings,
        redactor: Redactor,
        choices: Choices | None = None,
        told_by_system: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folders, self.state, self.settings = tuple(folders), state, settings
        self._redactor, self._choices, self._clock = redactor, choices or Choices(), clock
        self.stop = asyncio.Event()
        self._look_now = asyncio.Event()
        self.way = Way(make_outlet, self.stop, clock)
        self.keeping = Keeping(self.stop)
        self.roll = Roll(state, self.keeping, self._look_now, self.stop, settings=settings, clock=clock)
        self.agenda = self.roll.agenda
        self.hints = Hints(
            lambda: self.folders,
            self.roll.hear,
            self._look_now,
            self.stop,
            wanted=told_by_system,
            poll=settings.ship_poll_seconds,
        )
        self.events = 0
        """Events that arrived since the start."""
        self.readings = 0
        self.progress_at = clock()
        """When a batch last arrived, or nothing waited."""
        self._begun: dict[int, Begun] = {}
        """What readings of files that grow go on from, the one used longest ago first."""
        self._look_took = 0.0

    # -- the whole

    async def run(self) -> None:
        """Follow until ``stop``; what is under way then gets some seconds, and what is not done is read again next time."""
        tasks = [
            asyncio.create_task(each)
            for each in (self._discover(), self.hints.run(), self._lane(large=False), self._lane(large=True))
        ]
        ended = asyncio.create_task(self.stop.wait())
        try:
            await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
            self.stop.set()
            self.agenda.bell.set()
            self._look_now.set()
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        finally:
            for task in (ended, *tasks):
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            with suppress(OutletAway):
                await self.way.close()
        for result in results:
            # A state that cannot be written is no reason not to end: what was not kept is sent again.
            if isinstance(result, BaseException) and not isinstance(
                result, (asyncio.CancelledError, StateAway)
            ):
                raise result

    # -- which files there are

    async def _discover(self) -> None:
        forgotten = self._clock()
        while not self.stop.is_set():
            await self.look()
            if self.hints.told and self.roll.missed:
                self.hints.missed()
            if self._clock() - forgotten > 3600:
                forgotten = self._clock()
                await self.roll.forget()
            told = self.hints.told
            rest = self.settings.ship_scan_seconds if told else self.settings.ship_poll_seconds
            await wait(self._look_now, max(rest, LOOKS_SHARE * self._look_took))
            self._look_now.clear()

    async def look(self) -> None:
        """Look through the folders once, and take over what is new, written, moved or gone."""
        began = self._clock()
        found = await asyncio.to_thread(
            discovery.look_through, self.folders, self.state.folder, self.roll.inodes()
        )
        self._look_took = self._clock() - began
        await self.roll.apply(found)

    # -- when they are read

    async def _lane(self, *, large: bool) -> None:
        while not self.stop.is_set():
            if not await self.way.ready():
                return
            followed, rest = self.agenda.take(large=large)
            if followed is None:
                if not any(each.behind_since for each in self.roll.files.values()):
                    self.progress_at = self._clock()
                await wait(self.agenda.bell, min(rest, 5.0))
                self.agenda.bell.clear()
                continue
            await self._take(followed)

    async def work(self) -> int:
        """Read everything that is due at this moment, and return how many readings that were."""
        done = 0
        while (followed := self.agenda.take(large=True)[0]) is not None:
            if not await self.way.ready():
                break
            await self._take(followed)
            done += 1
        return done

    async def _take(self, followed: Followed) -> None:
        again = False
        try:
            again = await self._ship(followed)
        except OutletAway:
            again = True
        except TurnledgerError as error:
            self._fails(followed, str(error))
        except Exception as error:
            log.warning("%s: %r", followed.checkpoint.path, error)
            self._fails(
                followed,
                f"{followed.checkpoint.path} cannot be told ({type(error).__name__}: {error}): report this",
            )
        finally:
            self.roll.ended(followed)
        self._after(followed, again=again)

    def _fails(self, followed: Followed, sentence: str) -> None:
        if followed.trouble != sentence:
            log.warning(sentence)
        followed.trouble = sentence
        followed.reading = False
        self.agenda.put(followed, self._clock() + followed.retry)
        followed.retry = min(2 * followed.retry, LONGEST_RETRY)

    def _after(self, followed: Followed, *, again: bool) -> None:
        if followed.checkpoint.id not in self.roll.files or followed.due is not None:
            return
        now = self._clock()
        stale = followed.touched or followed.checkpoint.stamp != followed.look.stamp
        if again or (stale and followed.trouble is None):
            self.agenda.put(followed, max(now + AFTER_CHANGE, followed.rest_until))
        elif followed.waits and followed.trouble is None:
            self.agenda.put(followed, followed.changed_at + self.settings.ship_settle_seconds)

    # -- reading one

    async def _ship(self, followed: Followed) -> bool:
        """Read a file and send what is new in it. True when it has to be read again at once."""
        was, began = followed.checkpoint, self._clock()
        settled = began - followed.changed_at >= self.settings.ship_settle_seconds
        try:
            reading = await self.keeping.insist(self._begin, followed, settled)
        except Moved:
            self._look_now.set()
            return True
        except (Torn, Anew):
            followed.rest_until = self._clock() + SHARE * (self._clock() - began)
            return True
        if reading is None:
            self._look_now.set()
            return False
        took = self._clock() - began
        try:
            batch = reading.peek()
            if batch is None:
                await self.keeping.insist(self._advance, reading, was.id)
            while batch is not None:
                if self.stop.is_set():
                    return True
                await self.way.send(batch.rows)
                self.events += len(batch.rows)
                started = self._clock()
                batch = await self.keeping.insist(self._advance, reading, was.id)
                took += self._clock() - started
                self.progress_at = self._clock()
            checkpoint = reading.checkpoint
            assert checkpoint is not None, "a reading ends with its checkpoint"
            self._keep_begun(was.id, reading)
        finally:
            await asyncio.to_thread(reading.close)
        self.readings += 1
        # It may have been moved while it was read.
        checkpoint = replace(checkpoint, path=followed.checkpoint.path, gone=followed.checkpoint.gone)
        self._told(followed, checkpoint, reading.look, took)
        return False

    def _begin(self, followed: Followed, settled: bool) -> Reading | None:
        """Open a file and read its first batch; None where it is gone. In a thread."""
        was = followed.checkpoint
        look = growing.look(was.path)
        if look is None:
            return None
        if look.file != followed.look.file and followed.doubted < MOST_DOUBTS:
            followed.doubted += 1
            raise Moved
        followed.doubted = 0
        begun = self._begun.pop(was.id, None)  # a reading that is broken off leaves nothing to go on from
        reading = Reading(
            was,
            look,
            self.state.sent,
            choices=self._choices,
            redactor=self._redactor,
            settled=settled,
            begun=None if settled else begun,
        )
        try:
            reading.peek()
        except BaseException:
            reading.close()
            raise
        return reading

    def _keep_begun(self, number: int, reading: Reading) -> None:
        """Small files are read anew: that costs less than to remember where they stand."""
        begun = reading.begun
        if begun is None or reading.look.size < GOING_ON:
            return
        self._begun[number] = begun
        while len(self._begun) > MOST_BEGUN:
            self._begun.pop(next(iter(self._begun)), None)

    def _advance(self, reading: Reading, number: int) -> Batch | None:
        """Keep that the batch at hand has arrived, and read the next one; behind the last, keep where the file stands. In a thread; may be repeated."""
        try:
            following = reading.following()
        except BaseException:
            self.state.confirm(number, reading.at_hand())
            raise
        self.state.confirm(number, reading.at_hand(), reading.checkpoint, reading.outdated())
        reading.turn()
        return following

    def _told(self, followed: Followed, checkpoint: Checkpoint, look: Look, took: float) -> None:
        if checkpoint.generation != followed.checkpoint.generation:
            log.info("%s was written anew: generation %d", checkpoint.path, checkpoint.generation)
        now = self._clock()
        followed.checkpoint, followed.trouble, followed.retry = checkpoint, None, FIRST_RETRY
        followed.rest_until = now + SHARE * took
        if look.stamp != followed.look.stamp and not followed.touched:
            followed.look, followed.changed_at = look, now
        followed.behind_since = followed.behind_since or now if followed.lag_bytes else None
        self.progress_at = now

    # -- how it stands

    def now(self) -> float:
        """The follower's clock."""
        return self._clock()

    def reasons(self) -> list[str]:
        """Why health is red; empty when it is green. A single file that cannot be read is no reason: ``status`` names it."""
        now, said = self._clock(), []
        if self.keeping.trouble is not None:
            said.append(self.keeping.trouble)
        limit = self.settings.ship_red_after
        waits = any(each.behind_since is not None for each in self.roll.files.values())
        if self.way.trouble is not None and waits and now - self.way.since > limit:
            said.append(f"no event has left for {now - self.way.since:.0f} s: {self.way.trouble}")
        elif now - self.progress_at > STUCK and any(each.reading for each in self.roll.files.values()):
            said.append(f"nothing was read or sent for {now - self.progress_at:.0f} s, and files wait")
        said += [f"{path} cannot be looked at ({why})" for path, why in self.roll.found.refused.items()]
        return said
