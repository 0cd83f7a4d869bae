"""Owns which files there are: folders looked through, and what the system tells of changes in them. It opens none of the files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Container, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from watchfiles import DefaultFilter, awatch

from turnledger.harness.importer import BESIDE, OTHERS, SUFFIXES
from turnledger.ship import growing
from turnledger.ship.growing import Look

GROUPED_MS = 400
"""Changes within so many ms are told at once."""


@dataclass(slots=True)
class Found:
    """What stood below the folders at one look."""

    files: dict[Path, Look] = field(default_factory=dict)
    missing: list[Path] = field(default_factory=list)
    """Folders that were named and are not there."""
    refused: dict[Path, str] = field(default_factory=dict)
    """Folders and files of which the system says nothing, and why."""

    def unknown(self, path: Path) -> bool:
        """Whether the absence of a file here means nothing: it, or a folder above it, could not be looked at."""
        return path in self.refused or any(parent in self.refused for parent in path.parents)


def is_candidate(path: Path) -> bool:
    """Whether a file of a folder is looked into, by its name; whose it is, its content says."""
    name = path.name
    return name.endswith((*SUFFIXES, *OTHERS)) and not name.endswith(BESIDE)


def look_through(folders: Sequence[Path], without: Path, known: Container[int] = ()) -> Found:
    """All candidates below the folders, but for what is below ``without``: ship's own state is nobody's session.

    ``known``: inodes of files that were followed under another name; they are found again whatever they are called now, since what came right before they
    were rotated may not be told yet.
    """
    found = Found()
    for folder in folders:
        if folder.is_dir():
            _look_into(folder, without, known, found)
        else:
            found.missing.append(folder)
    return found


def _look_into(folder: Path, without: Path, known: Container[int], found: Found) -> None:
    below = [folder]
    while below:
        here = below.pop()
        try:
            with os.scandir(here) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            continue  # it went while we looked
        except OSError as error:
            found.refused[here] = error.strerror or str(error)
            continue
        for entry in entries:
            path = here / entry.name
            if entry.is_dir(follow_symlinks=False):
                if path != without:
                    below.append(path)
                continue
            if path in found.files or not (is_candidate(path) or entry.inode() in known):
                continue
            try:
                seen = growing.look(path)
            except OSError as error:
                found.refused[path] = error.strerror or str(error)
                continue
            if seen is not None:
                found.files[path] = seen


class _All(DefaultFilter):
    """Every change: harnesses keep their files in folders that others would not look into."""

    ignore_dirs = ()
    ignore_entity_patterns = ()


async def changes(folders: Sequence[Path], stop: asyncio.Event) -> AsyncGenerator[set[Path], None]:
    """Paths at which something was written, made or removed, as the system tells it (inotify on Linux). Ends with ``stop``; raises :class:`OSError` where
    the system does not tell, for example because its limit of watches is reached. What is told is a hint: some may be missing."""
    watching = awatch(
        *folders,
        watch_filter=_All(),
        debounce=GROUPED_MS,
        stop_event=stop,
        recursive=True,
        ignore_permission_denied=True,
    )
    async with aclosing(watching):  # its watches are let go of now, not when somebody collects them
        async for batch in watching:
            yield {Path(path) for _change, path in batch}
