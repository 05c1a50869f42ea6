"""Encrypted connections to PostgreSQL and MariaDB: what is asked of the server's certificate is really asked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tampu
from tampu.broker import access
from tests.conformance.harness import payloads
from tests.servers import mariadb, postgres
from tests.servers.certificates import self_signed


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def certificate(place: Path) -> Path:
    return self_signed(place)[0]


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of somebody who vouches for nobody here."""
    return self_signed(tmp_path_factory.mktemp("stranger"))[0]


@pytest.fixture(scope="module")
def maria(certificate: Path) -> Iterator[mariadb.MariaDb]:
    settings = {"ssl_cert": str(certificate), "ssl_key": str(certificate.with_name("key.pem"))}
    with mariadb.MariaDb({**mariadb.FAST, **settings}) as server:
        yield server


@pytest.fixture(scope="module")
def pg(certificate: Path) -> Iterator[postgres.Postgres]:
    server = postgres.Postgres()
    for name in ("cert.pem", "key.pem"):
        mine = Path(shutil.copy(certificate.with_name(name), server.folder))
        shutil.chown(mine, server.folder.stat().st_uid, server.folder.stat().st_gid)
        mine.chmod(0o600)
    here = {"ssl_cert_file": str(server.folder / "cert.pem"), "ssl_key_file": str(server.folder / "key.pem")}
    server.settings |= {"ssl": "on", **here}
    with server:
        yield server


def _cipher(store: tampu.Store) -> Any:
    engine: Any = access.engine(store)
    with engine._db.connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        return cursor.fetchone()[1]


@pytest.mark.parametrize("identity", ["false", "true"])
def test_mariadb_is_spoken_to_in_secret_if_its_authority_is_named(
    maria: mariadb.MariaDb, certificate: Path, identity: str
) -> None:
    url = maria.url(ssl_ca=str(certificate), ssl_verify_identity=identity)
    with tampu.open(url, maintenance=False) as store:
        assert _cipher(store)
        store.publish("jobs", identity)
        assert payloads(store.claim("jobs")) == [identity]


@pytest.mark.parametrize("options", [{"ssl_ca": "stranger"}, {"ssl_verify_identity": "true"}], ids=str)
def test_a_mariadb_that_nobody_vouches_for_is_refused(
    maria: mariadb.MariaDb, stranger: Path, options: dict[str, str]
) -> None:
    named = {name: str(stranger) if value == "stranger" else value for name, value in options.items()}
    with pytest.raises(tampu.Unavailable, match="certificate"):
        tampu.open(maria.url(**named))


def test_a_mariadb_of_another_name_is_refused_by_who_asks_for_it(maria: mariadb.MariaDb, certificate: Path) -> None:
    url = maria.url(ssl_ca=str(certificate)).replace("127.0.0.1", "localhost")  # the certificate has only the address
    tampu.open(url, maintenance=False).close()
    with pytest.raises(tampu.Unavailable, match="certificate"):
        tampu.open(f"{url}&ssl_verify_identity=true")


def test_certificates_that_cannot_be_read_are_said_so(maria: mariadb.MariaDb, place: Path) -> None:
    for options in ({"ssl_ca": str(place / "none.pem")}, {"ssl_cert": str(place / "none.pem")}):
        with pytest.raises(tampu.InvalidConfig, match="cannot be read"):
            tampu.open(maria.url(**options))
    with pytest.raises(tampu.InvalidConfig, match="true or false"):
        tampu.open(maria.url(ssl_verify_identity="perhaps"))


def test_postgresql_is_asked_for_its_certificate_as_libpq_does(
    pg: postgres.Postgres, certificate: Path, stranger: Path
) -> None:
    with tampu.open(pg.url(sslmode="verify-full", sslrootcert=str(certificate)), maintenance=False) as store:
        engine: Any = access.engine(store)
        assert engine._db.connection.pgconn.ssl_in_use
        store.publish("jobs", 1)
        assert payloads(store.claim("jobs")) == [1]
    with pytest.raises(tampu.Unavailable, match="certificate"):
        tampu.open(pg.url(sslmode="verify-full", sslrootcert=str(stranger)))
