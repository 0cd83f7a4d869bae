"""Owns which files are followed, and under which checkpoint: what is new, written, moved, rotated or gone since the last look. It reads none of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from turnledger.ship import agenda, discovery, growing
from turnledger.ship.agenda import Agenda
from turnledger.ship.discovery import Found
from turnledger.ship.followed import Followed
from turnledger.ship.growing import Look
from turnledger.ship.keeping import Keeping
from turnledger.ship.reading import stands_before
from turnledger.ship.settings import ShipSettings
from turnledger.ship.state import Checkpoint, State

AFTER_CHANGE = 0.3
"""Seconds from a change to the reading: a harness writes several lines at once."""

log = logging.getLogger("turnledger.ship")


class Roll:
    """The files of a follower. Ends with ``stop``; ``look_now`` is set where only a look through the folders can tell."""

    def __init__(
        self,
        state: State,
        keeping: Keeping,
        look_now: asyncio.Event,
        stop: asyncio.Event,
        *,
        settings: ShipSettings,
        clock: Callable[[], float],
    ) -> None:
        self._state, self._keeping, self._look_now, self._stop = state, keeping, look_now, stop
        self._settings, self._clock = settings, clock
        self.files: dict[int, Followed] = {}
        self.agenda = Agenda(self.files, clock)
        self.found = Found()
        """What stood below the folders at the last look."""
        self._paths: dict[Path, int] = {}
        self._unheard: set[Path] = set()
        """What the last look found to be written or made before the system told of it; what tells does so within a second."""
        self._heard: set[Path] = set()
        """What the system told of since, and only a look could tell about."""
        self._looks = 0
        self.missed: set[Path] = set()
        """Of what the look before the last found, what the system has not told of to this day."""
        self._gone = {each.id: each for each in state.checkpoints()}
        """Known and not there: at the start, until a look finds them."""
        self._lost: dict[int, Followed] = {}
        """Those of them that are being read all the same: met again, they are the same ones, and no second reading begins beside."""

    @property
    def gone(self) -> int:
        """Files that are remembered and not there any more."""
        return sum(each.gone for each in self._gone.values())

    def inodes(self) -> set[int]:
        """Of all that is known: a look finds them whatever they are called."""
        known = {each.inode for each in self._gone.values()}
        known.update(each.checkpoint.inode for each in self.files.values())
        return known

    async def apply(self, found: Found) -> None:
        """Take over what a look found."""
        for folder in found.missing:
            if folder not in self.found.missing:
                log.warning("%s is not there: it is followed as soon as it is", folder)
        for path, reason in found.refused.items():
            if path not in self.found.refused:
                log.warning("%s cannot be looked at (%s): correct its permissions", path, reason)
        self.found = found
        self._compare(found)
        new = {look.file for path, look in found.files.items() if path not in self._paths}
        for path in list(self._paths):
            seen = found.files.get(path)
            if seen is None:
                if not found.unknown(path):
                    self._lose(path)
                continue
            followed = self.files[self._paths[path]]
            was = (followed.checkpoint.device, followed.checkpoint.inode)
            if was in new and was != seen.file:
                self._lose(path)  # rotated: the file has another path by now, and its path another file
            else:
                self.seen(followed, seen)
        await self._meet_all(found)
        going = [each for each in self._gone.values() if not each.gone and not found.unknown(each.path)]
        if going:
            await self._keeping.insist(self._state.mark_gone, [each.id for each in going])
            for each in going:
                each.gone = True

    def _compare(self, found: Found) -> None:
        """What of this look the system has not told of; it may still do so."""
        self._looks += 1
        self.missed, self._unheard = self._unheard, set()
        heard, self._heard = self._heard, set()
        if self._looks == 1:
            return  # what was written before anybody listened
        for path, look in found.files.items():
            number = self._paths.get(path)
            if number is not None and self.files[number].look.stamp == look.stamp:
                continue
            if heard.isdisjoint((path, *path.parents)):
                self._unheard.add(path)

    def _lose(self, path: Path) -> None:
        followed = self.files.pop(self._paths.pop(path))
        self._gone[followed.checkpoint.id] = followed.checkpoint
        if followed.reading:
            self._lost[followed.checkpoint.id] = followed

    def ended(self, followed: Followed) -> None:
        """A reading ended, by itself or by an error."""
        followed.reading = False
        number = followed.checkpoint.id
        if self._lost.pop(number, None) is not None and number in self._gone:
            self._gone[number] = followed.checkpoint

    async def _meet_all(self, found: Found) -> None:
        """Paths that are not followed yet: files that were moved, files of an earlier run, new ones. Those that were moved first, so that none of them is
        taken for a new file, and none that has its path now for it."""
        there = {path: look.file for path, look in found.files.items()}
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
            if path not in self._paths and discovery.is_candidate(path) and not self._stop.is_set():
                await self._meet(path, found.files[path], by_path.get(path))

    async def _meet(self, path: Path, look: Look, checkpoint: Checkpoint | None) -> None:
        """Follow a file from where an earlier run left it, or from its beginning."""
        if checkpoint is None:
            checkpoint = await self._keeping.insist(self._state.begin, path, look.device, look.inode)
        else:
            del self._gone[checkpoint.id]
            if checkpoint.path != path:
                log.info("%s is called %s now", checkpoint.path, path)
                for each in [each for each in self._gone.values() if each.path == path]:
                    del self._gone[each.id]  # the state keeps one of a path
            if checkpoint.path != path or checkpoint.gone:
                await self._keeping.insist(self._state.call, checkpoint.id, path)
        now = self._clock()
        followed = self._lost.pop(checkpoint.id, None) or Followed(checkpoint, look, now)
        followed.checkpoint = replace(followed.checkpoint, path=path, gone=False)
        self.files[checkpoint.id] = followed
        self._paths[path] = checkpoint.id
        if followed.reading:
            self.seen(followed, look)
            return
        checkpoint = followed.checkpoint
        if checkpoint.stamp != look.stamp:
            followed.behind_since = now
            self.agenda.put(followed, now)
        elif followed.waits:
            followed.behind_since = now if followed.held else None
            self.agenda.put(followed, now + self._settings.ship_settle_seconds)

    def seen(self, followed: Followed, look: Look, *, told: bool = False) -> None:
        """What the system says of a file now; ``told``: it says that something was written."""
        if look.stamp == followed.look.stamp and not (told and look.size <= agenda.LARGE):
            return  # a large file is not read again for what its stamp does not show
        now = self._clock()
        if look.file != followed.look.file:
            followed.rest_until = now
        followed.look, followed.changed_at = look, now
        if followed.behind_since is None:
            followed.behind_since = now
        at = max(now + AFTER_CHANGE, followed.rest_until)
        if followed.due is None or not followed.rest_until <= followed.due <= at:
            self.agenda.put(
                followed, at
            )  # else it is read before that: while nothing can be sent, nothing is put down twice

    async def hear(self, paths: Iterable[Path]) -> None:
        """Take over what the system tells of."""
        told = {growing.belongs_to(path) for path in paths}
        if self._unheard:
            self._unheard = {each for each in self._unheard if told.isdisjoint((each, *each.parents))}
        for path in told:
            if self._state.folder in path.parents or not discovery.is_candidate(path):
                if path.is_dir():
                    self._heard.add(path)
                    self._look_now.set()  # what was made in a new folder before the system told of it
                continue
            try:
                look = growing.look(path)
            except OSError:
                look = None
            number = self._paths.get(path)
            if number is None or look is None or number not in self.files or not self._same(number, look):
                self._heard.add(path)
                self._look_now.set()  # new, moved or gone: all of them are seen together
            else:
                self.seen(self.files[number], look, told=True)

    def _same(self, number: int, look: Look) -> bool:
        """Whether a path still has the file that it had."""
        return self.files[number].look.file == look.file

    async def forget(self) -> None:
        """Let go of what was told so long ago that a repeat may be a duplicate."""
        before = time.time() - self._settings.ship_forget_seconds
        gone = [each.id for each in self._gone.values() if each.gone and each.touched_at < before]
        quiet = [each.checkpoint.id for each in self.files.values() if each.checkpoint.touched_at < before]
        for number in gone:
            del self._gone[number]
        await self._keeping.insist(self._state.forget, gone, wholly=True)
        await self._keeping.insist(self._state.forget, quiet, wholly=False)
