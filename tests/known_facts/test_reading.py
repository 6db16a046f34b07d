"""What real servers are known to send, read through the public client."""

from __future__ import annotations

import pytest

import directsuite as ds
from tests.known_facts.quirk_rows import QUIRK_ROWS, SUCCESS
from tests.known_facts.readers import Reader, read_patient
from tests.known_facts.service import make_response, serve_responses
from tests.known_facts.shape_rows import SHAPE_ROWS

ROWS = [*QUIRK_ROWS, *SHAPE_ROWS]


@pytest.mark.parametrize(("body", "look", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
async def test_the_client_reads(body: object, look: Reader, expected: object) -> None:
    async with serve_responses(make_response(body)) as service:
        assert await look(service) == expected


@pytest.mark.parametrize(
    "media_type", ["application/json;charset=UTF-8", "application/json", "text/plain", "text/html"]
)
async def test_the_media_type_does_not_decide_whether_an_answer_is_json(media_type: str) -> None:
    async with serve_responses(make_response(SUCCESS | {"count": 3}, media_type=media_type)) as service:
        assert await service.box.get_message_count() == 3


async def test_a_proxy_s_page_in_place_of_json_is_named() -> None:
    page = make_response("<html>Zaphod</html>", media_type="text/html; charset=utf-8")
    async with serve_responses(page) as service:
        with pytest.raises(ds.ResponseDecodeError, match="text/html") as caught:
            await service.box.with_options(retry=ds.RetryPolicy.none()).get_message_count()
    assert "Zaphod" not in str(caught.value)


@pytest.mark.exhaustive
@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "401 Unauthorized", "500 Internal Server Error"])
@pytest.mark.parametrize(
    ("code", "error"), [(1, ds.AuthenticationError), (2, ds.AddressError), (3, ds.ServiceError), ("4", ds.ServiceError)]
)
async def test_a_messaging_error_is_the_same_with_any_status(
    status: str, code: object, error: type[ds.ServiceError]
) -> None:
    refusal = make_response({"success": False, "code": code, "message": "Zaphod"}, status=status)
    async with serve_responses(refusal) as service:
        with pytest.raises(ds.ServiceError) as caught:
            await service.box.get_message_count()
    assert type(caught.value) is error
    assert caught.value.code == int(str(code))
    assert caught.value.message == "Zaphod"
    assert caught.value.outcome is ds.Outcome.FAILED
    assert len(service.server.requests) == 1
    assert "Zaphod" not in str(caught.value)


@pytest.mark.parametrize("member", ["errorMessage", "message"])
async def test_a_registration_error_s_text_is_read_from_either_member(member: str) -> None:
    async with serve_responses(make_response({"success": False, "code": "210", member: "none"})) as service:
        with pytest.raises(ds.NotFoundError) as caught:
            await read_patient(service)
    assert (caught.value.message, caught.value.code) == ("none", "210")


async def test_a_code_that_is_a_text_of_its_own_is_not_printed() -> None:
    async with serve_responses(make_response({"success": False, "code": "Zaphod"})) as service:
        with pytest.raises(ds.ServiceError) as caught:
            await read_patient(service)
    assert caught.value.code == "Zaphod"
    assert "Zaphod" not in f"{caught.value}{caught.value!r}"
