"""Certificates of a test's own authority, as files: good ones, and the kinds of bad ones that a client must refuse."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


@dataclass(frozen=True)
class Pem:
    """A certificate with its key: ``both`` in one file, or each in its own. The key is PKCS #8, as Kafka reads it."""

    both: Path
    certificate: Path
    key: Path


class Authority:
    """One authority below ``folder``; ``ca`` is its own certificate."""

    def __init__(self, folder: Path, name: str = "ours") -> None:
        self._ca, self._folder = trustme.CA(organization_name=name), folder / name
        self._folder.mkdir()
        self.ca = self._folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.ca))

    def issue(self, identity: str, *, expired: bool = False) -> Pem:
        """A certificate for a host (or a client) of that name; ``expired``: since yesterday."""
        now = datetime.now(UTC).replace(tzinfo=None)
        made = self._ca.issue_cert(
            identity,
            not_before=now - timedelta(days=2),
            not_after=now + timedelta(days=-1 if expired else 1),
        )
        key = serialization.load_pem_private_key(made.private_key_pem.bytes(), None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
        stem = self._folder / f"{identity}{'-expired' if expired else ''}"
        pem = Pem(*(stem.with_name(stem.name + end) for end in (".pem", ".certificate.pem", ".key.pem")))
        pem.both.write_bytes(key + chain)
        pem.certificate.write_bytes(chain)
        pem.key.write_bytes(key)
        return pem

    def server(self, identity: str, *, expired: bool = False) -> ssl.SSLContext:
        """What a server of that name listens with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.issue(identity, expired=expired).both)
        return context
