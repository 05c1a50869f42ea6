"""An empty store on each of the SQL databases."""

import pytest

from tests.servers import mariadb, postgres

DATABASES: dict[str, mariadb.Databases | postgres.Databases] = {
    "postgres": postgres.databases,
    "mariadb": mariadb.databases,
}


@pytest.fixture(params=DATABASES)
def databases(request: pytest.FixtureRequest) -> mariadb.Databases | postgres.Databases:
    return DATABASES[request.param]


@pytest.fixture
def url(databases: mariadb.Databases | postgres.Databases) -> str:
    return databases.url()
