"""JSON payloads come out as JSON values; other payloads as objects with data and metadata."""

from __future__ import annotations

import json

import pytest

from afflux.calls import compose, reply
from afflux.cli.unwrapping import Unwrapper, is_json
from afflux.core.payload import Payload
from tests.cli.running import Server, here


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b'{"a":1.10,"b":"\xc3\xa9"}', '{"a":1.10,"b":"é"}'),
        (b' [1,\r\n {"a": null}]\n', '[1,   {"a": null}]'),
        (b"42", '{"data":"42"}'),
        (b"true", '{"data":"true"}'),
        (b"text", '{"data":"text"}'),
        (b'{"a":', '{"data":"{\\"a\\":"}'),
        (b'{"a":NaN}', '{"data":"{\\"a\\":NaN}"}'),
        (b'{"a":1e999}', '{"data":"{\\"a\\":1e999}"}'),
        (b"[" * 100_000, '{"data":"' + "[" * 100_000 + '"}'),
        (b"{\xff}", '{"data_hex":"7bff7d"}'),
        (b"", '{"data":""}'),
    ],
    ids=str,
)
def test_data_of_an_unknown_type_is_json_if_it_is_an_object_or_an_array(data: bytes, line: str) -> None:
    shown = Unwrapper().line(Payload(data))
    assert shown.replace("  ", " ") == line.replace("  ", " ")
    assert "\n" not in shown
    json.loads(shown if len(shown) < 1000 else "0")
    assert json.loads(Unwrapper().document(Payload(data))) == json.loads(shown)


@pytest.mark.parametrize("mime", ["application/json", "text/json", "application/vnd.x+json", "Application/JSON; x=y"])
def test_data_of_a_json_type_is_any_value(mime: str) -> None:
    assert is_json(mime)
    assert Unwrapper(mime).line(Payload(b"42")) == "42"
    assert Unwrapper().line(reply(b'"x"', mime)) == '"x"'
    assert Unwrapper(mime).line(Payload(b"text")) == '{"data":"text"}'


def test_data_of_another_type_is_not_json() -> None:
    assert Unwrapper("text/plain").line(Payload(b"[1]")) == '{"data":"[1]"}'
    assert json.loads(Unwrapper().line(reply(b"[1]", "text/plain")))["data"] == "[1]"
    assert Unwrapper("application/octet-stream").line(Payload(b"[1]")) == "[1]"


def test_the_type_of_an_item_precedes_that_of_the_connection() -> None:
    assert Unwrapper("text/plain").line(reply(b"42", "application/json")) == "42"


def test_other_metadata_is_shown_beside_the_value() -> None:
    assert Unwrapper().line(Payload(b"[1]", b"m")) == '{"data":[1],"metadata":"m"}'
    with_route = Payload(b"[1]", compose(route="a"))
    assert json.loads(Unwrapper().line(with_route)) == {"data": [1], "metadata_hex": compose(route="a").hex()}
    assert json.loads(Unwrapper().document(Payload(b"[1]", b"m"))) == {"data": [1], "metadata": "m"}


def test_requests_print_values() -> None:
    with Server("--demo") as server:

        def shown(*words: str) -> str:
            ran = here("request", server.uri, *words)
            assert (ran.code, ran.errors) == (0, "")
            return ran.out

        assert shown("-d", '{"a": 1}') == '{"a": 1}\n'
        assert json.loads(shown("-d", '{"a": 1}', "-o", "json")) == {"a": 1}
        assert shown("-d", "42", "--dmt", "application/json", "-o", "ndjson") == "42\n"
        assert shown("-d", "[1]", "--dmt", "text/plain") == '{"data":"[1]"}\n'
        assert shown("-d", '{"a": 1}', "-o", "text") == '{"a": 1}\n'
        assert shown("-d", "x", "-o", "text") == "x\n"
        three = ("--stream", "-d", '{"count": 3}', "-o", "raw")
        assert shown(*three) == "012"
        assert shown(*three, "--end", "none") == "012"
        assert shown(*three, "--end", "newline") == "0\n1\n2\n"
        assert shown(*three, "--end", "nul") == "0\0" + "1\0" + "2\0"
        assert shown("-d", '{"a": [1], "b": true, "c": null}', "-o", "csv") == "a,b,c\n[1],true,\n"
