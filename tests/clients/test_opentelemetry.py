"""A collector of OpenTelemetry's spans, which reads what the server sends with the project's own protobuf messages.

`make test-clients` builds the command with the feature `otel` and names it in `RSGEN_OTEL_COMMAND`.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
# Milliseconds until spans that wait are sent.
DELAY = "50"
# Seconds that a test waits for one.
PATIENCE = 30


class Collector:
    """What came in, as a span with the attributes of its resource."""

    def __init__(self) -> None:
        self.spans: Queue[tuple[Span, dict[str, object]]] = Queue()
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
                for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    for scope in of_resource.scope_spans:
                        for span in scope.spans:
                            spans.put((span, attributes(of_resource.resource)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def next(self) -> tuple[Span, dict[str, object]]:
        """The next span."""
        return self.spans.get(timeout=PATIENCE)


def attributes(of: object) -> dict[str, object]:
    """The attributes of a span or a resource as plain values."""

    def plain(value: object) -> object:
        kind = value.WhichOneof("value")
        found = getattr(value, kind)
        return [plain(each) for each in found.values] if kind == "array_value" else found

    return {attribute.key: plain(attribute.value) for attribute in of.attributes}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """A collector on a free port."""
    collector = Collector()
    yield collector
    collector.server.shutdown()


@pytest.fixture(scope="module")
def url(collector: Collector) -> Iterator[str]:
    """A server that sends its spans there."""
    command = [os.environ["RSGEN_OTEL_COMMAND"], "serve", "--port", "0", "--json", "--num-threads", "1"]
    told = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=stories,deployment.environment.name=test",
        "OTEL_BSP_SCHEDULE_DELAY": DELAY,
    }
    with subprocess.Popen(command, env=os.environ | told, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


def post(url: str, path: str, body: dict[str, object], **headers: str) -> bytes:
    """The answer to a request."""
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"content-type": "application/json", **headers}
    )
    with urllib.request.urlopen(request) as answer:
        return answer.read()


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_a_span_of_the_trace_that_it_names(collector: Collector, url: str, stream: bool) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
    post(url, "/v1/completions", {"prompt": "Once", "max_tokens": 5, "stream": stream}, **headers)
    span, resource = collector.next()
    assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == (
        "POST /v1/completions",
        TRACE,
        PARENT,
    )
    assert span.kind == Span.SPAN_KIND_SERVER
    assert (resource["service.name"], resource["deployment.environment.name"]) == ("stories", "test")
    found = attributes(span)
    assert (found["http.route"], found["http.response.status_code"]) == ("/v1/completions", 200)
    assert (found["gen_ai.request.id"], found["gen_ai.request.model"]) == ("mine", "story-3m")
    assert found["gen_ai.usage.output_tokens"] == 5
    assert found["gen_ai.response.finish_reasons"] == ["length"]
    elapsed = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    first, last = (found[f"gen_ai.latency.time_to_{which}_token"] for which in ("first", "last"))
    assert 0 < first <= last <= elapsed < PATIENCE


def test_a_request_without_a_trace_begins_one_and_probes_are_not_traced(
    collector: Collector, url: str
) -> None:
    for path in ("/health", "/metrics", "/v1/models"):
        urllib.request.urlopen(url + path).read()
    span, _ = collector.next()
    assert (span.name, span.parent_span_id) == ("GET /v1/models", b"")
    assert collector.spans.empty()
    assert "gen_ai.usage.output_tokens" not in attributes(span)


def test_spans_are_named_after_routes_and_not_after_what_stands_in_a_path(
    collector: Collector, url: str
) -> None:
    for path, name in (("/v1/models/none-of-this-name", "GET /v1/models/{*id}"), ("/no/such/path", "GET")):
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(url + path)
        span, _ = collector.next()
        found = attributes(span)
        assert (span.name, found["url.path"], found["http.response.status_code"]) == (name, path, 404)
