"""An empty house on each of the SQL databases."""

import pytest

from tests.servers import mariadb, postgres

HOUSES: dict[str, mariadb.Houses | postgres.Houses] = {"postgres": postgres.houses, "mariadb": mariadb.houses}


@pytest.fixture(params=HOUSES)
def houses(request: pytest.FixtureRequest) -> mariadb.Houses | postgres.Houses:
    return HOUSES[request.param]


@pytest.fixture
def url(houses: mariadb.Houses | postgres.Houses) -> str:
    return houses.url()
