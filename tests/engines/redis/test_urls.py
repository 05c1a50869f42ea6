"""Urls: what each form means, and what is refused, with the form it should have."""

import pytest

import tampu
from tampu.engines.redis.connection import urls


def test_a_plain_url_has_defaults() -> None:
    place = urls.parse("redis://localhost")
    assert (place.hosts, place.db, place.tls, place.cluster, place.prefix) == (
        (("localhost", 6379),),
        0,
        False,
        False,
        "tampu",
    )


def test_user_password_port_and_database_are_read() -> None:
    place = urls.parse("rediss://ada:p%40ss@db.example:7000/3?prefix=jobs&timeout=2.5")
    assert (place.username, place.password, place.hosts, place.db) == ("ada", "p@ss", (("db.example", 7000),), 3)
    assert (place.tls, place.prefix, place.timeout) == (True, "jobs", 2.5)


@pytest.mark.parametrize("url", ["redis+cluster://a:7000,b:7001", "redis://a:7000?cluster=true"])
def test_a_cluster_has_two_spellings(url: str) -> None:
    place = urls.parse(url)
    assert place.cluster
    assert place.hosts[0] == ("a", 7000)


def test_sentinels_name_the_master() -> None:
    place = urls.parse("redis+sentinel://:secret@s1:26379,s2/mymaster/2?sentinel_password=x")
    assert place.hosts == (("s1", 26379), ("s2", 26379))
    assert (place.service, place.db, place.password, place.sentinel_password) == ("mymaster", 2, "secret", "x")


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost/one", "redis://localhost/1/2", "redis+cluster://localhost/1", "redis://a,b",
        "redis+sentinel://localhost", "redis://localhost?nothing=1", "redis://localhost?prefix=a:b",
        "redis://localhost?timeout=0", "redis://localhost?timeout=long", "redis://localhost?cluster=perhaps",
        "redis://localhost:port",
    ],
)  # fmt: skip
def test_a_url_that_means_nothing_is_refused(url: str) -> None:
    with pytest.raises(tampu.InvalidConfig) as refused:
        tampu.open(url)
    assert refused.value.field == "url"


@pytest.mark.parametrize("scheme", ["redis+anything", "rediss+tls", "redis+", "rediss+cluster+sentinel"])
def test_a_scheme_that_nobody_knows_is_refused_with_those_that_are_known(scheme: str) -> None:
    with pytest.raises(tampu.InvalidConfig, match="no engine for") as refused:
        tampu.open(f"{scheme}://127.0.0.1:1")
    assert refused.value.field == "url"
    for known in ("redis://", "rediss://", "redis+cluster://", "redis+sentinel://"):
        assert known in str(refused.value.hint)


def test_names_with_colons_do_not_share_a_tag(url: str) -> None:
    with tampu.open(url, tenant="a:b", maintenance=False) as one, tampu.open(url, tenant="a", maintenance=False) as two:
        one.publish("c", 1)
        two.publish("b:c", 2)
        assert [m.payload for m in one.messages("c")] == [1]
        assert [m.payload for m in two.messages("b:c")] == [2]


def test_stores_of_two_prefixes_do_not_meet(url: str) -> None:
    with tampu.open(url, maintenance=False) as one, tampu.open(f"{url}-other", maintenance=False) as two:
        one.publish("jobs", 1)
        assert two.queues.list() == []
        assert two.claim("jobs") == []
