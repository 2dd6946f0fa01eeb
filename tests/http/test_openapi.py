"""The OpenAPI document describes every route of the broker, and no other."""

import pytest

from django_mqlite.http.routes import RPCS


@pytest.fixture
def document(client):
    response = client.http.get(f"{client.url}/openapi.json")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    return response.json()


@pytest.mark.rule("24.5")
def test_document_is_valid_openapi(document):
    validator = pytest.importorskip(
        "openapi_spec_validator", reason="NOT TESTED: openapi-spec-validator is absent"
    )

    errors = validator.OpenAPIV31SpecValidator(document).iter_errors()

    assert [error.message for error in errors] == []


@pytest.mark.rule("24.5")
def test_document_has_every_rpc_and_no_other(document):
    posts = {path for path, item in document["paths"].items() if "post" in item}

    assert posts == set(RPCS)


@pytest.mark.rule("24.5")
def test_every_documented_route_exists(document, client):
    for path, item in document["paths"].items():
        (method,) = item
        response = client.http.request(
            method,
            client.url + path,
            headers=client.headers,
            content=b"" if method == "post" else None,
        )

        assert "no such path" not in response.text, path
        if method == "get":
            assert response.status_code == 200
        else:
            assert response.json().get("code") != "unimplemented"


@pytest.mark.rule("24.5")
def test_every_operation_needs_a_key_unless_it_says_so(document, client):
    for path, item in document["paths"].items():
        ((method, operation),) = item.items()
        response = client.http.request(method, client.url + path)

        expected = 401 if operation.get("security", document["security"]) else 200
        assert response.status_code == expected, path


@pytest.mark.rule("24.5")
def test_operations_have_summaries_and_unique_ids(document):
    operations = [operation for item in document["paths"].values() for operation in item.values()]

    assert all(operation["summary"].endswith(".") for operation in operations)
    assert len({operation["operationId"] for operation in operations}) == len(operations)


@pytest.mark.rule("24.5")
def test_response_of_an_rpc_has_the_documented_fields(document, client):
    queue = client.queue()
    schema = document["components"]["schemas"]["StatsResponse"]

    assert set(client.stats(queue)) == set(schema["properties"]) == set(schema["required"])
