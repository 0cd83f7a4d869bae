"""Owns following: which file is read when, and that nothing counts as told before it has arrived. Effects (the sink, the clock, the folders) are passed in.

One file is read by one lane at a time. Memory holds a line about each file, and of what is being read one batch: what does not go out stays in the files.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from turnledger.contract.redact import Redactor
from turnledger.errors import TurnledgerError
from turnledger.harness.format import Anew
from turnledger.harness.importer import Begun
from turnledger.harness.outlets import Outlet, OutletAway
from turnledger.ship import discovery, growing
from turnledger.ship.discovery import Found
from turnledger.ship.growing import Look
from turnledger.ship.reading import Batch, Choices, Reading, Torn, stands_before
from turnledger.ship.settings import ShipSettings
from turnledger.ship.state import Checkpoint, State, StateAway
from turnledger.ship.way import Way

AFTER_CHANGE = 0.3
"""Seconds from a change to the reading: a harness writes several lines at once."""
LARGE = 4 * 1024 * 1024
"""Files above this wait for each other, so that none of them stands before the small ones."""
GOING_ON = 64 * 1024
"""Files above this go on from where their last reading ended, where their format can."""
MOST_BEGUN = 64
"""Of so many files it is remembered how to go on: some 300 bytes a line of each."""
SHARE = 4
"""A file is not read again before this many times what its last reading took: one that never rests costs at most a fifth of a core."""
LOOKS_SHARE = 20
"""Folders are not looked through again before this many times what the last look took."""
FIRST_RETRY, LONGEST_RETRY = 5.0, 300.0
"""Seconds before a file that could not be read is tried again, doubled each time; a change in it is tried at once."""
STATE_PAUSE = 2.0
"""Seconds before a write of the state that failed is tried again."""
STUCK = 300.0
"""Seconds without an end of any reading after which something is wrong; the greatest document takes a tenth of that."""
STOP_SECONDS = 8.0
"""What the batches that are under way get when ship is told to end."""

log = logging.getLogger("turnledger.ship")
T = TypeVar("T")


@dataclass(slots=True)
class Followed:
    """One file. Times are of the follower's clock."""

    checkpoint: Checkpoint
    look: Look
    changed_at: float
    behind_since: float | None = None
    due: float | None = None
    reading: bool = False
    touched: bool = False
    """Something was written while it was read, or the system said so where the stamp does not show it."""
    trouble: str | None = None
    retry: float = FIRST_RETRY
    rest_until: float = 0.0

    @property
    def lag_bytes(self) -> int:
        """Bytes that are not told yet; of what is written anew as a whole, all."""
        if self.checkpoint.stamp == self.look.stamp:
            return max(self.look.size - self.checkpoint.told, 0) if self.held else 0
        grown = self.look.size - self.checkpoint.told
        return grown if grown > 0 else self.look.size

    @property
    def waits(self) -> bool:
        """Whether it has to be read once more when it has settled: something was held, or only what had come was read."""
        return self.held or (not self.checkpoint.settled and bool(self.checkpoint.notes.get("partial")))

    @property
    def held(self) -> bool:
        """Whether something waits for the file to be written to its end, or to settle."""
        return not self.checkpoint.settled and bool(self.checkpoint.notes.get("held"))


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
        self._wants_hints = told_by_system
        self.stop = asyncio.Event()
        self.way = Way(make_outlet, self.stop, clock)
        self.files: dict[int, Followed] = {}
        self.found = Found()
        self.events = 0
        """Events that arrived since the start."""
        self.readings = 0
        self.progress_at = clock()
        """When a batch last arrived, or nothing waited."""
        self.state_trouble: str | None = None
        self.looking: str | None = None
        """Why the system does not tell of changes."""
        self._paths: dict[Path, int] = {}
        self._begun: dict[int, Begun] = {}
        """What readings of files that grow go on from, the one used longest ago first."""
        self._gone: dict[int, Checkpoint] = {}
        self._due: tuple[list[tuple[float, int]], list[tuple[float, int]]] = ([], [])
        """Small files and large ones."""
        self._look_took = 0.0
        self._bell = asyncio.Event()
        self._look_now = asyncio.Event()
        for checkpoint in state.checkpoints():
            self._gone[checkpoint.id] = checkpoint  # until a look finds it

    # -- the whole

    async def run(self) -> None:
        """Follow until ``stop``; what is under way then gets some seconds, and what is not done is read again next time."""
        tasks = [
            asyncio.create_task(each)
            for each in (self._discover(), self._hints(), self._lane(large=False), self._lane(large=True))
        ]
        ended = asyncio.create_task(self.stop.wait())
        try:
            await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
            self.stop.set()
            self._bell.set()
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

    async def _pause(self, seconds: float, bell: asyncio.Event | None = None) -> None:
        """Wait that long, or until the bell, or until ``stop``."""
        waiting = bell or self.stop
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await waiting.wait()
        if bell is not None:
            bell.clear()

    # -- which files there are

    async def _discover(self) -> None:
        forgotten = self._clock()
        while not self.stop.is_set():
            await self.look()
            if self._clock() - forgotten > 3600:
                forgotten = self._clock()
                await self._forget()
            told = self.told_by_system
            rest = self.settings.ship_scan_seconds if told else self.settings.ship_poll_seconds
            await self._pause(max(rest, LOOKS_SHARE * self._look_took), self._look_now)

    async def look(self) -> None:
        """Look through the folders once, and take over what is new, written, moved or gone."""
        began = self._clock()
        known = {each.inode for each in self._gone.values()}
        known.update(each.checkpoint.inode for each in self.files.values())
        found = await asyncio.to_thread(discovery.look_through, self.folders, self.state.folder, known)
        self._look_took = self._clock() - began
        await self._apply(found)

    async def _apply(self, found: Found) -> None:
        for folder in found.missing:
            if folder not in self.found.missing:
                log.warning("%s is not there: it is followed as soon as it is", folder)
        for path, reason in found.refused.items():
            if path not in self.found.refused:
                log.warning("%s cannot be looked at (%s): correct its permissions", path, reason)
        self.found = found
        new = {(look.device, look.inode) for path, look in found.files.items() if path not in self._paths}
        for path in list(self._paths):
            seen = found.files.get(path)
            if seen is None:
                if not found.unknown(path):
                    self._lose(path)
                continue
            followed = self.files[self._paths[path]]
            was = (followed.checkpoint.device, followed.checkpoint.inode)
            if was in new and was != (seen.device, seen.inode):
                self._lose(path)  # rotated: the file has another path by now, and its path another file
            else:
                self._seen(followed, seen)
        await self._meet_all(found)
        going = [each for each in self._gone.values() if not each.gone and not found.unknown(each.path)]
        if going:
            await self._insist(self.state.mark_gone, [each.id for each in going])
            for each in going:
                each.gone = True

    def _lose(self, path: Path) -> None:
        followed = self.files.pop(self._paths.pop(path))
        self._gone[followed.checkpoint.id] = followed.checkpoint

    async def _meet_all(self, found: Found) -> None:
        """Paths that are not followed yet: files that were moved, files of an earlier run, new ones. Those that were moved first, so that none of them is
        taken for a new file, and none that has its path now for it."""
        there = {path: (look.device, look.inode) for path, look in found.files.items()}
        by_inode = {
            (each.device, each.inode): each
            for each in self._gone.values()
            if there.get(each.path) != (each.device, each.inode)
        }
        met = [path for path in found.files if path not in self._paths]
        for path in met:
            moved = by_inode.get(there[path])
            if moved is None or moved.id not in self._gone:
                continue
            if await asyncio.to_thread(
                stands_before, path, moved
            ):  # else its inode was given to another file
                await self._meet(path, found.files[path], moved)
        by_path = {each.path: each for each in self._gone.values()}
        for path in met:
            if path not in self._paths and discovery.is_candidate(path) and not self.stop.is_set():
                await self._meet(path, found.files[path], by_path.get(path))

    async def _meet(self, path: Path, look: Look, checkpoint: Checkpoint | None) -> None:
        """Follow a file from where an earlier run left it, or from its beginning."""
        if checkpoint is None:
            checkpoint = await self._insist(self.state.begin, path, look.device, look.inode)
        else:
            del self._gone[checkpoint.id]
            if checkpoint.path != path:
                log.info("%s is called %s now", checkpoint.path, path)
                for each in [each for each in self._gone.values() if each.path == path]:
                    del self._gone[each.id]  # the state keeps one of a path
            if checkpoint.path != path or checkpoint.gone:
                checkpoint = replace(checkpoint, path=path, gone=False)
                await self._insist(self.state.keep, checkpoint)
        now = self._clock()
        followed = self.files[checkpoint.id] = Followed(checkpoint, look, now)
        self._paths[path] = checkpoint.id
        if checkpoint.stamp != look.stamp:
            followed.behind_since = now
            self._schedule(followed, now)
        elif followed.waits:
            followed.behind_since = now if followed.held else None
            self._schedule(followed, now + self.settings.ship_settle_seconds)

    def _seen(self, followed: Followed, look: Look, *, told: bool = False) -> None:
        """What the system says of a file now; ``told``: it says that something was written."""
        if look.stamp == followed.look.stamp and not (told and look.size <= LARGE):
            return  # a large file is not read again for what its stamp does not show
        now = self._clock()
        if (look.device, look.inode) != (followed.look.device, followed.look.inode):
            followed.rest_until = now
        followed.look, followed.changed_at = look, now
        if followed.behind_since is None:
            followed.behind_since = now
        if followed.reading:
            followed.touched = True
        else:
            self._schedule(followed, max(now + AFTER_CHANGE, followed.rest_until))

    async def _hints(self) -> None:
        """Listen to the system; where it does not tell, looking alone has to do."""
        while self._wants_hints and not self.stop.is_set():
            there = [folder for folder in self.folders if folder.is_dir()]
            if there:
                try:
                    await self._listen(there)
                except (OSError, RuntimeError) as error:
                    if self.looking is None and all(folder.is_dir() for folder in there):
                        self.looking = str(error)
                        log.warning(
                            "the system does not tell of changes (%s): all files are looked at every %g s; on Linux raise fs.inotify.max_user_watches",
                            error,
                            self.settings.ship_poll_seconds,
                        )
                    self._look_now.set()
            await self._pause(self.settings.ship_poll_seconds)
        await self.stop.wait()

    async def _listen(self, there: Sequence[Path]) -> None:
        """Until a folder comes or goes, or ``stop``."""
        again = asyncio.Event()
        changed = asyncio.create_task(self._folders_change(there, again))
        try:
            async for paths in discovery.changes(there, again):
                self.looking = None
                await self._hear(paths)
        finally:
            changed.cancel()

    async def _folders_change(self, there: Sequence[Path], again: asyncio.Event) -> None:
        """A folder that was removed and made anew is another one, of which the system tells nothing."""
        before = [_identity(folder) for folder in there]
        while not self.stop.is_set():
            await self._pause(self.settings.ship_poll_seconds)
            now = [folder for folder in self.folders if folder.is_dir()]
            if now != list(there) or [_identity(folder) for folder in now] != before:
                self._look_now.set()
                break
        again.set()

    async def _hear(self, paths: Iterable[Path]) -> None:
        for path in {growing.belongs_to(path) for path in paths}:
            if self.state.folder in path.parents or not discovery.is_candidate(path):
                if path.is_dir():
                    self._look_now.set()  # what was made in a new folder before the system told of it
                continue
            try:
                look = growing.look(path)
            except OSError:
                look = None
            number = self._paths.get(path)
            if number is None or look is None or number not in self.files:
                self._look_now.set()  # new, moved or gone: all of them are seen together
            else:
                self._seen(self.files[number], look, told=True)

    async def _forget(self) -> None:
        """Let go of what was told so long ago that a repeat may be a duplicate."""
        before = time.time() - self.settings.ship_forget_seconds
        gone = [each.id for each in self._gone.values() if each.gone and each.touched_at < before]
        quiet = [each.checkpoint.id for each in self.files.values() if each.checkpoint.touched_at < before]
        for number in gone:
            del self._gone[number]
        await self._insist(self.state.forget, gone, wholly=True)
        await self._insist(self.state.forget, quiet, wholly=False)

    # -- when they are read

    def _schedule(self, followed: Followed, at: float) -> None:
        if followed.reading:
            followed.touched = True
            return
        followed.due = at
        heapq.heappush(self._due[followed.look.size > LARGE], (at, followed.checkpoint.id))
        self._bell.set()

    def _next(self, *, large: bool) -> tuple[Followed | None, float]:
        """A file that is due, or how long until one is. Small files go to either lane."""
        now, wait = self._clock(), 3600.0
        for heap in (self._due[1], self._due[0]) if large else (self._due[0],):
            while heap:
                at, number = heap[0]
                followed = self.files.get(number)
                if followed is None or followed.due != at or followed.reading:
                    heapq.heappop(heap)  # it was scheduled anew, or is gone
                elif at > now:
                    wait = min(wait, at - now)
                    break
                else:
                    heapq.heappop(heap)
                    followed.due, followed.reading, followed.touched = None, True, False
                    return followed, 0.0
        return None, wait

    async def _lane(self, *, large: bool) -> None:
        while not self.stop.is_set():
            if not await self.way.ready():
                return
            followed, wait = self._next(large=large)
            if followed is None:
                if not any(each.behind_since for each in self.files.values()):
                    self.progress_at = self._clock()
                await self._pause(min(wait, 5.0), self._bell)
                continue
            await self._take(followed)

    async def work(self) -> int:
        """Read everything that is due at this moment, and return how many readings that were."""
        done = 0
        while (followed := self._next(large=True)[0]) is not None:
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
            followed.reading = False
        self._after(followed, again=again)

    def _fails(self, followed: Followed, sentence: str) -> None:
        if followed.trouble != sentence:
            log.warning(sentence)
        followed.trouble = sentence
        self._schedule_retry(followed)

    def _schedule_retry(self, followed: Followed) -> None:
        followed.reading = False
        self._schedule(followed, self._clock() + followed.retry)
        followed.retry = min(2 * followed.retry, LONGEST_RETRY)

    def _after(self, followed: Followed, *, again: bool) -> None:
        if followed.checkpoint.id not in self.files or followed.due is not None:
            return
        now = self._clock()
        stale = followed.touched or followed.checkpoint.stamp != followed.look.stamp
        if again or (stale and followed.trouble is None):
            self._schedule(followed, max(now + AFTER_CHANGE, followed.rest_until))
        elif followed.waits and followed.trouble is None:
            self._schedule(followed, followed.changed_at + self.settings.ship_settle_seconds)

    # -- reading one

    async def _ship(self, followed: Followed) -> bool:
        """Read a file and send what is new in it. True when it has to be read again at once."""
        was, began = followed.checkpoint, self._clock()
        settled = began - followed.changed_at >= self.settings.ship_settle_seconds
        try:
            reading = await self._insist(self._begin, was, settled)
        except (Torn, Anew):
            followed.rest_until = self._clock() + SHARE * (self._clock() - began)
            return True
        if reading is None:
            self._look_now.set()
            return False
        took = self._clock() - began
        try:
            batch = reading.peek()
            while batch is not None:
                if self.stop.is_set():
                    return True
                await self.way.send(batch.rows)
                self.events += len(batch.rows)
                started = self._clock()
                batch = await self._insist(self._advance, reading, was.id)
                took += self._clock() - started
                self.progress_at = self._clock()
            if reading.checkpoint is None:
                await self._insist(self._advance, reading, was.id)
            checkpoint = reading.checkpoint
            assert checkpoint is not None, "a reading ends with its checkpoint"
            self._keep_begun(was.id, reading)
        finally:
            await asyncio.to_thread(reading.close)
        self.readings += 1
        if followed.checkpoint.path != checkpoint.path:  # it was moved while it was read
            checkpoint = replace(checkpoint, path=followed.checkpoint.path)
            await self._insist(self.state.keep, checkpoint)
        self._told(followed, checkpoint, reading.look, took)
        return False

    def _begin(self, was: Checkpoint, settled: bool) -> Reading | None:
        """Open a file and read its first batch; None where it is gone. In a thread."""
        look = growing.look(was.path)
        if look is None:
            return None
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
        self.state.confirm(number, reading.at_hand(), reading.checkpoint)
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

    async def _insist(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """The state's work, again and again while its disk does not take it: what was sent must be kept before anything else is."""
        while True:
            try:
                result = await asyncio.to_thread(work, *arguments, **named)
                if self.state_trouble is not None:
                    self.state_trouble = None
                    log.warning("the state can be written again")
                return result
            except StateAway as error:
                if self.state_trouble is None:
                    log.warning(str(error))
                self.state_trouble = str(error)
                if self.stop.is_set():
                    raise
                await self._pause(STATE_PAUSE)

    # -- how it stands

    @property
    def told_by_system(self) -> bool:
        """Whether the system tells of changes, so that looking is only there for what it misses."""
        return self._wants_hints and self.looking is None

    @property
    def gone(self) -> int:
        """Files that are remembered and not there any more."""
        return sum(each.gone for each in self._gone.values())

    def now(self) -> float:
        """The follower's clock."""
        return self._clock()

    def reasons(self) -> list[str]:
        """Why health is red; empty when it is green. A single file that cannot be read is no reason: ``status`` names it."""
        now, said = self._clock(), []
        if self.state_trouble is not None:
            said.append(self.state_trouble)
        limit = self.settings.ship_red_after
        waits = any(each.behind_since is not None for each in self.files.values())
        if self.way.trouble is not None and waits and now - self.way.since > limit:
            said.append(f"no event has left for {now - self.way.since:.0f} s: {self.way.trouble}")
        elif now - self.progress_at > STUCK and any(each.reading for each in self.files.values()):
            said.append(f"nothing was read or sent for {now - self.progress_at:.0f} s, and files wait")
        said += [f"{path} cannot be looked at ({why})" for path, why in self.found.refused.items()]
        return said


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
