"""Settings of TLS towards the broker: what cannot be used is a sentence that names the variable."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.stack.certificates import Authority
from turnledger.errors import TurnledgerError
from turnledger.kafka.tls import context_of
from turnledger.settings import Settings


def test_without_tls_there_is_no_context() -> None:
    assert context_of(Settings(kafka_tls=False)) is None


def test_a_context_wants_a_certificate_of_the_broker_and_its_name() -> None:
    context = context_of(Settings(kafka_tls=True))
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_the_authority_and_a_certificate_of_our_own_are_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ours = authority.issue("client")
    apart = Settings(
        kafka_tls=True,
        kafka_ca_file=str(authority.ca),
        kafka_certificate_file=str(ours.certificate),
        kafka_key_file=str(ours.key),
    )
    context = context_of(apart)
    assert context is not None and len(context.get_ca_certs()) == 1
    assert context_of(Settings(kafka_tls=True, kafka_certificate_file=str(ours.both))) is not None


@pytest.mark.parametrize("name", ["ca", "certificate", "key"])
def test_files_without_tls_are_refused_so_that_nothing_goes_in_the_clear_unnoticed(name: str) -> None:
    with pytest.raises(
        TurnledgerError, match=f"TURNLEDGER_KAFKA_{name.upper()}_FILE is set and TURNLEDGER_KAFKA_TLS is not"
    ):
        context_of(Settings(**{f"kafka_{name}_file": "/there.pem"}))


def test_a_key_alone_is_refused() -> None:
    with pytest.raises(TurnledgerError, match="without TURNLEDGER_KAFKA_CERTIFICATE_FILE"):
        context_of(Settings(kafka_tls=True, kafka_key_file="/there.pem"))


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_files_that_cannot_be_used_are_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "some.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TurnledgerError, match=r"TURNLEDGER_KAFKA_CA_FILE \(.*some.pem\) cannot be used \("):
        context_of(Settings(kafka_tls=True, kafka_ca_file=str(path)))
    with pytest.raises(
        TurnledgerError, match=r"the certificate .*some.pem with the key in it cannot be used \("
    ):
        context_of(Settings(kafka_tls=True, kafka_certificate_file=str(path)))


def test_a_key_of_another_certificate_and_one_with_a_password_are_refused_without_asking(
    tmp_path: Path,
) -> None:
    from cryptography.hazmat.primitives import serialization

    authority = Authority(tmp_path)
    ours, other = authority.issue("client"), authority.issue("other")
    secret = tmp_path / "secret.pem"
    secret.write_bytes(
        serialization.load_pem_private_key(ours.key.read_bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"word"),
        )
    )
    for key in (other.key, secret):
        with pytest.raises(TurnledgerError, match="belong together, the key without a password"):
            context_of(
                Settings(
                    kafka_tls=True, kafka_certificate_file=str(ours.certificate), kafka_key_file=str(key)
                )
            )
