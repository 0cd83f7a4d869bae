"""Where archives are: a folder of any file system that fsspec knows (a path, ``s3://…``, ``gs://…``), with the few things that are done there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any

from turnledger.errors import TurnledgerError

_USER = re.compile(r"^([a-z0-9+]+://)[^/@]*@")


class PlaceAway(TurnledgerError):
    """The folder cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder, and everything below it. Names are relative, parted by ``/``."""

    system: Any
    """A file system of fsspec."""
    root: str
    url: str
    """As it is written down: without credentials."""

    @property
    def local(self) -> bool:
        protocol = self.system.protocol
        return "file" in ((protocol,) if isinstance(protocol, str) else protocol)

    def path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}" if name else self.root

    def names(self) -> list[str]:
        """The files below, sorted."""
        with self.speaking(""):
            self.system.invalidate_cache()
            found = self.system.find(self.root)
        start = len(self.root.rstrip("/")) + 1
        return sorted(name[start:] for name in found)

    def size(self, name: str) -> int | None:
        """Bytes of a file, None where there is none."""
        with self.speaking(name):
            try:
                return int(self.system.info(self.path(name))["size"])
            except FileNotFoundError:
                return None

    def read(self, name: str) -> bytes:
        """Raises ``FileNotFoundError``."""
        with self.speaking(name):
            return bytes(self.system.cat_file(self.path(name)))

    @contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        with self.speaking(name), self.system.open(self.path(name), "rb") as file:
            yield file

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """A new file, or one in the place of another; on a disk it is there when this ends."""
        path = self.path(name)
        with self.speaking(name):
            self.system.makedirs(str(PurePosixPath(path).parent), exist_ok=True)
            with self.system.open(path, "wb") as file:
                yield file
            if self.local:
                _sync(path)

    def put(self, name: str, data: bytes) -> None:
        """A whole file at once: a reader sees it whole, or not at all."""
        with self.speaking(name):
            if not self.local:
                self.system.pipe_file(self.path(name), data)
                return
            with self.writing(f"{name}.part") as file:
                file.write(data)
            os.replace(self.path(f"{name}.part"), self.path(name))
            _sync(str(PurePosixPath(self.path(name)).parent))

    @contextmanager
    def speaking(self, name: str) -> Iterator[None]:
        """What file systems raise, as one sentence; a file that is not there stays what it is."""
        try:
            yield
        except (FileNotFoundError, TurnledgerError):
            raise
        except OSError as error:
            why = error.strerror or type(error).__name__
            shown = f"{self.url.rstrip('/')}/{name}" if name else self.url
            raise PlaceAway(
                f"{shown} cannot be read or written ({why}): check the address, the rights to it and its free space, then run it again."
            ) from None


def place(url: str) -> Place:
    """The folder at ``url``. Raises :class:`PlaceAway` where no file system is known or installed for it."""
    import fsspec

    shown = _USER.sub(r"\1", url)
    try:
        system, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise PlaceAway(
            f"{shown} needs a package that is not installed ({error}): install it beside turnledger (s3fs for s3://, gcsfs for gs://)."
        ) from None
    except ValueError as error:
        raise PlaceAway(
            f"{shown} is no address of files ({error}): give a path, or a URL such as s3://bucket/folder."
        ) from None
    if "://" not in shown:
        shown = str(root)
    return Place(system, str(root), shown.rstrip("/"))


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
