"""Owns TLS towards the broker: one context of the settings for every client of this process, and what a handshake says when none comes about."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from turnledger.errors import TurnledgerError
from turnledger.settings import Settings

HANDSHAKE_SECONDS = 5.0


def context_of(settings: Settings) -> ssl.SSLContext | None:
    """None without TLS. Raises a :class:`TurnledgerError` that names the variable for what cannot be used."""
    given = {
        "CA": settings.kafka_ca_file,
        "CERTIFICATE": settings.kafka_certificate_file,
        "KEY": settings.kafka_key_file,
    }
    if not settings.kafka_tls:
        for name, path in given.items():
            if path is not None:
                raise TurnledgerError(
                    f"TURNLEDGER_KAFKA_{name}_FILE is set and TURNLEDGER_KAFKA_TLS is not: set that to true, or everything would go in the clear"
                )
        return None
    context = _trusting(settings.kafka_ca_file)
    certificate, key = settings.kafka_certificate_file, settings.kafka_key_file
    if certificate is None:
        if key is not None:
            raise TurnledgerError(
                "TURNLEDGER_KAFKA_KEY_FILE is set without TURNLEDGER_KAFKA_CERTIFICATE_FILE: a key alone shows nothing, set both"
            )
        return context
    try:
        # An encrypted key would be asked for on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        raise TurnledgerError(
            f"the certificate {certificate} with the key {key or 'in it'} cannot be used ({_why(error)}): TURNLEDGER_KAFKA_CERTIFICATE_FILE and "
            "TURNLEDGER_KAFKA_KEY_FILE name PEM files that belong together, the key without a password"
        ) from None
    return context


def _trusting(path: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise TurnledgerError(
            f"TURNLEDGER_KAFKA_CA_FILE ({path}) cannot be used ({_why(error)}): it names a PEM file of the authorities that sign the broker's certificate"
        ) from None


def _why(error: Exception) -> str:
    return (
        error.strerror if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else None
    ) or str(error)


async def trouble(bootstrap: str, context: ssl.SSLContext) -> str | None:
    """Why no handshake with one of the addresses comes about, as the client library does not say; None where that is not what fails."""
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
                # A client certificate is judged behind the handshake: a broker that wants another one closes.
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await reader.read(1)
                writer.close()
        except ssl.SSLCertVerificationError as error:
            return f"the certificate of {address} is not accepted: {error.verify_message}"
        except ssl.SSLError as error:
            return f"no TLS with {address}: {error.reason or error}"
        except (OSError, TimeoutError):
            continue
    return None
