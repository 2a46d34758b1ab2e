"""schemathesis: requests made from the server's OpenAPI document, and whether each answer is as the document says."""

from collections import Counter

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
EXAMPLES = 25
# The least share of valid requests of a known model that are answered: the pockets do not chat, and no model is for every task.
SHARES = {"chatter": 0.1, "pockets": 0.03}
BOUNDED = ("max_tokens", "max_completion_tokens", "max_output_tokens")  # what a request may ask for


@pytest.mark.parametrize("kind", ["valid", "invalid"])
@pytest.mark.parametrize("name", ["chatter", "pockets"])
def test_every_operation_answers_as_the_document_says(request, name, kind):
    server = request.getfixturevalue(name)
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    mode = schemathesis.GenerationMode.POSITIVE if kind == "valid" else schemathesis.GenerationMode.NEGATIVE
    statuses = {}
    for operation in (found.ok() for found in schema.get_all_operations()):
        if kind == "valid" or operation.body:  # without a body no request is invalid
            statuses[operation.label] = answered(operation, mode)
    posts = Counter()
    for label, found in statuses.items():
        posts += found if label.startswith("POST") else Counter()
    print({label: dict(found) for label, found in statuses.items()})
    known = posts.total() - posts[404]
    assert posts[200 if kind == "valid" else 400] > known * (SHARES[name] if kind == "valid" else 0)


def answered(operation, mode):
    """How many requests of this operation had which status. Each answer is checked."""
    statuses = Counter()

    @hypothesis.seed(0)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def run(case):
        if isinstance(case.body, dict):
            case.body.update({name: 2 for name in BOUNDED if isinstance(case.body.get(name), int)})
        response = case.call()
        statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    run()
    return statuses
