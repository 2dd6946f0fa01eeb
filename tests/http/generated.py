"""Requests that are generated from the OpenAPI document, right and wrong ones."""

import base64
import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

OPEN = ("open-1", "open-2", "open-topic", "open-copy")
"""Names on which the access keys of the test have rights."""

SHUT = ("shut-queue", "shut-topic", "shut-copy")
"""Names on which no key has a right."""

ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=20),
    st.sampled_from(["", "\x00", "x" * 1_025, "x" * 70_000, "ü", "%s", "'; --"]),
)
TEXTS = {
    **dict.fromkeys(("queue", "name", "topic", "target"), (*OPEN, *OPEN, *OPEN, *SHUT, "nowhere")),
    "state": ("active", "locked", "scheduled", "deferred", "dead_lettered", "completed"),
    "kind": ("queue", "subscription"),
    "ordering_mode": ("standard", "group_fifo", "strict_fifo"),
    "expr": (
        'subject == "a"',
        'properties["a"] startsWith "b" and body_size > 3',
        "len(body_text) > days(1)",
        "body_json.a.b == 1",
        "(" * 500,
    ),
    **dict.fromkeys(("group_id", "message_id", "unique_key", "subject"), ("a", "b")),
    "receive_attempt_id": ("", "again"),
}
SMALL = st.sampled_from([0, 0, 0, 1, 2, 3, 60_000])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
NUMBERS = ("seq_number", "seq_numbers", "from_seq")
KEYS = ("all", "send", "listen", "manage", "revoked", "wrong", "none")


@dataclass(frozen=True, kw_only=True)
class Generated:
    """A request. `lease` chooses one of the leases that the test holds, None for a made-up one."""

    method: str
    path: str
    key: str
    body: bytes | dict[str, Any]
    lease: int | None

    def content(self, leases: list[dict[str, Any]]) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        body = dict(self.body)
        if self.lease is not None and leases:
            lease = leases[self.lease % len(leases)]
            body |= {field: value for field, value in lease.items() if field in body}
        return json.dumps(body).encode()


def requests(document: dict[str, Any]) -> st.SearchStrategy[Generated]:
    """Return the strategy for requests to every RPC of the document."""
    paths = [path for path, item in document["paths"].items() if "post" in item]
    return st.sampled_from(paths).flatmap(lambda path: _request(document, path))


def _request(document: dict[str, Any], path: str) -> st.SearchStrategy[Generated]:
    operation = document["paths"][path]["post"]
    bodies = odd_bodies = st.just({})
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        schemas = document["components"]["schemas"]
        bodies = _values(Shape(schemas=schemas, is_usual=True), schema, "")
        odd_bodies = _values(Shape(schemas=schemas, is_usual=False), schema, "")
    wrong = st.one_of(
        st.binary(max_size=30),
        ANY_JSON.map(lambda value: json.dumps(value).encode()),
        st.tuples(bodies, st.dictionaries(ANY_TEXT, ANY_JSON, min_size=1, max_size=2)).map(
            lambda parts: json.dumps(parts[0] | parts[1]).encode()
        ),
    )
    return st.builds(
        Generated,
        method=st.sampled_from(["POST"] * 30 + ["GET", "PUT", "DELETE"]),
        path=st.sampled_from([path] * 40 + [f"{path}/", path.lower(), f"{path}%2f", "/nothing"]),
        key=st.sampled_from(["all"] * 10 + list(KEYS)),
        body=st.one_of(bodies, bodies, bodies, bodies, odd_bodies, wrong),
        lease=st.none() | st.integers(0, 100),
    )


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The schemas, and whether values are those that clients usually send."""

    schemas: dict[str, Any]
    is_usual: bool


def _values(shape: Shape, schema: Any, name: str) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return _values(shape, shape.schemas[schema["$ref"].rpartition("/")[2]], name)
    if "anyOf" in schema:
        return st.one_of([_values(shape, choice, name) for choice in schema["anyOf"]])
    match schema["type"]:
        case "object":
            return _objects(shape, schema)
        case "array":
            return st.lists(_values(shape, schema["items"], name), max_size=4)
        case "string":
            return _texts(shape, schema, name)
        case "integer":
            return _integers(shape, name)
        case "boolean":
            return st.booleans()
    return st.none()


def _objects(shape: Shape, schema: Any) -> st.SearchStrategy[Any]:
    if "properties" not in schema:
        texts = st.sampled_from("abc") if shape.is_usual else ANY_TEXT
        return st.dictionaries(texts, texts, max_size=3)
    fields = {field: _values(shape, value, field) for field, value in schema["properties"].items()}
    likely = {field: fields.pop(field) for field in ("queue", "name") if field in fields}
    return st.fixed_dictionaries(likely, optional=fields)


def _texts(shape: Shape, schema: Any, name: str) -> st.SearchStrategy[str]:
    if "contentEncoding" in schema:
        return st.binary(max_size=50).map(lambda body: base64.b64encode(body).decode())
    usual = st.sampled_from(TEXTS.get(name, ("a", "b", "")))
    return usual if shape.is_usual else st.one_of(usual, usual, ANY_TEXT)


def _integers(shape: Shape, name: str) -> st.SearchStrategy[int]:
    if name == "wait_time_ms":
        return st.sampled_from([0, 0, 0, 5, -1, -(2**63)])
    any_integer = st.integers(-(2**63), 2**63 - 1)
    usual = st.integers(0, 200) if name in NUMBERS else SMALL
    return usual if shape.is_usual else st.one_of(usual, any_integer)
