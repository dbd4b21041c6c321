"""schemathesis: requests that the description of the API allows, and others, get answers that it describes."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from serving import Server

# Requests that generate are kept short.
MAX_TOKENS = 2
LIMITS = {
    "/v1/completions": "max_tokens",
    "/v1/chat/completions": "max_completion_tokens",
    "/v1/messages": "max_tokens",
    "/v1/responses": "max_output_tokens",
    "/rsgen/v1/generate": "max_new_tokens",
    "/rsgen/v1/translate": "max_new_tokens",
}


@pytest.fixture(scope="module")
def description(server: Server) -> schemathesis.schemas.BaseSchema:
    """The description that the server gives."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    # No schema says that fields contradict each other, or which ids a model has: see `assert_explained`.
    schema.config.checks.positive_data_acceptance.enabled = False
    return schema


schema = schemathesis.pytest.from_fixture("description")


#: The routes of the description. Each is a test.
PATHS = [
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/responses/{id}",
    "/v1/responses/{id}/input_items",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/score",
    "/v1/rerank",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/show",
    "/api/tags",
    "/api/ps",
    "/api/version",
    "/v1/models",
    "/v1/models/{id}",
    "/rsgen/v1/generate",
    "/rsgen/v1/translate",
    "/translate",
    "/languages",
    "/tokenize",
    "/detokenize",
    "/tokenizer_info",
    "/apply-template",
    "/health",
    "/health/ready",
    "/health/live",
    "/metrics",
    "/version",
    "/openapi.json",
]


def test_each_route_is_tested(description: schemathesis.schemas.BaseSchema) -> None:
    assert sorted(description.raw_schema["paths"]) == sorted(PATHS)


def of_route(path: str) -> Callable[..., None]:
    """The test of a route."""

    @pytest.mark.timeout(120)
    @schema.include(path=path).parametrize()
    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def test(case: schemathesis.Case) -> None:
        check_answer(case)

    return test


for path in PATHS:
    name = re.sub(r"\W+", "_", path).strip("_")
    globals()[f"test_answers_of_{name}_are_as_described"] = of_route(path)


def check_answer(case: schemathesis.Case) -> None:
    """Sends a request, and checks the answer."""
    if isinstance(case.body, dict):
        for name in {"max_tokens", "max_length", *LIMITS.values()} & case.body.keys():
            limit = case.body[name]
            if limit is None or (isinstance(limit, int) and limit > MAX_TOKENS):
                case.body[name] = MAX_TOKENS
        if case.path in ("/api/chat", "/api/generate") and not case.body.get("options"):
            case.body["options"] = {"num_predict": MAX_TOKENS}
        if case.path in LIMITS and "max_tokens" not in case.body:
            case.body.setdefault(LIMITS[case.path], MAX_TOKENS)
    response = case.call()
    case.validate_response(response)
    if response.status_code == 400 and isinstance(case.body, dict):
        assert_explained(response.json()["error"], case)


def assert_explained(error: dict[str, object] | str, case: schemathesis.Case) -> None:
    """A refusal names a field of the description, or one that the request has, and says what is wrong."""
    if isinstance(error, str) or case.path.startswith("/v1/messages"):
        # These shapes have no place for the field but the message.
        assert case.path.startswith(("/translate", "/v1/messages", "/api/")), error
        message = error if isinstance(error, str) else str(error["message"])
        assert len(message.split()) > 3, error
        return
    body = case.operation.definition.raw["requestBody"]["content"]["application/json"]["schema"]
    assert isinstance(error["param"], str), error
    [field, *_] = re.split(r"[.\[]", error["param"])
    assert field in {*body["properties"], *case.body}, error
    assert len(str(error["message"]).split()) > 3, error
