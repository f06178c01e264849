"""A JobManager answers reads as the leader only if its job store confirms that it is."""

from __future__ import annotations

from emberkeep.rest.vouching import UNCONFIRMED
from tests.unit.rest.server import Site


async def test_a_confirmed_answer_is_given_as_it_is(site: Site) -> None:
    response = await site.get("/v1/blocklist")
    assert response.status == 200
    assert UNCONFIRMED not in response.headers


async def test_an_answer_in_doubt_says_so(site: Site) -> None:
    site.gateway.confirmed = False
    response = await site.get("/v1/blocklist")
    assert response.status == 200
    assert response.headers[UNCONFIRMED] == "1"


async def test_a_job_manager_that_no_longer_leads_sends_the_client_elsewhere(site: Site) -> None:
    site.gateway.confirmed = None
    response = await site.get("/v1/blocklist")
    assert response.status == 503
    assert "no longer leads" in str(response.json())
