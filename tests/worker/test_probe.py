"""The port for probes: real sockets, and clients of every kind."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import pytest

from django_jobs.worker import probe as probes
from django_jobs.worker.probe import MOST_CLIENTS, Probe

WORDS = {"/live": "ok", "/ready": "database"}

PATIENCE = 20.0


@pytest.fixture
def probe() -> Iterator[Probe]:
    probe = Probe("127.0.0.1", 0)
    probe.start(WORDS.get)
    yield probe
    probe.close()


def address(probe: Probe) -> tuple[str, int]:
    host, port = probe.url.removeprefix("http://").rsplit(":", 1)
    return host, int(port)


def ask(probe: Probe, path: str, method: str = "GET") -> tuple[int, str]:
    with closing(HTTPConnection(*address(probe), timeout=PATIENCE)) as connection:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()


def say(probe: Probe, said: bytes) -> bytes:
    """Send bytes as they are, and give all that comes back."""
    with socket.create_connection(address(probe), timeout=PATIENCE) as client:
        client.sendall(said)
        heard = b""
        while chunk := client.recv(4_096):
            heard += chunk
        return heard


def test_all_well_is_200_and_anything_else_503_with_the_word_for_it(probe: Probe) -> None:
    assert ask(probe, "/live") == (200, "ok\n")
    assert ask(probe, "/ready") == (503, "database\n")


def test_a_query_does_not_matter(probe: Probe) -> None:
    assert ask(probe, "/live?verbose=1") == (200, "ok\n")


def test_other_paths_are_unknown(probe: Probe) -> None:
    assert ask(probe, "/") == (404, "unknown\n")
    assert ask(probe, "/live/") == (404, "unknown\n")


def test_head_gets_the_same_without_the_word(probe: Probe) -> None:
    assert ask(probe, "/live", "HEAD") == (200, "")
    assert ask(probe, "/ready", "HEAD") == (503, "")
    assert b"Content-Length: 3\r\n" in say(probe, b"HEAD /live HTTP/1.1\r\n\r\n")


def test_other_methods_are_refused(probe: Probe) -> None:
    assert ask(probe, "/live", "POST") == (405, "method\n")
    assert b"Allow: GET, HEAD\r\n" in say(probe, b"DELETE /live HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("said", [b"\r\n\r\n", b"GET\r\n\r\n", b"GET /live\r\n\r\n", b"\xff\x00 / x\r\n\r\n"])
def test_what_is_no_request_is_refused(probe: Probe, said: bytes) -> None:
    assert say(probe, said).startswith(b"HTTP/1.1 400 ")


def test_each_answer_ends_its_connection_and_is_not_to_be_kept(probe: Probe) -> None:
    heard = say(probe, b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"Connection: close\r\n" in heard
    assert b"Cache-Control: no-store\r\n" in heard
    assert heard.endswith(b"\r\n\r\nok\n")


def test_one_that_talks_too_much_is_not_listened_to(probe: Probe) -> None:
    try:
        heard = say(probe, b"GET /live HTTP/1.1\r\n" + b"X: y\r\n" * 10_000)
    except ConnectionError:
        heard = b""
    assert heard == b""
    assert ask(probe, "/live") == (200, "ok\n")


def test_one_that_leaves_in_the_middle_does_not_matter(probe: Probe) -> None:
    with socket.create_connection(address(probe), timeout=PATIENCE) as client:
        client.sendall(b"GET /li")
    assert ask(probe, "/live") == (200, "ok\n")


def test_clients_that_dawdle_keep_nobody_from_an_answer(probe: Probe) -> None:
    with ExitStack() as stack:
        for _ in range(3 * MOST_CLIENTS):
            client = stack.enter_context(socket.create_connection(address(probe), timeout=PATIENCE))
            client.sendall(b"GET /live HTTP/1.1\r\n")
        assert ask(probe, "/live") == (200, "ok\n")
        assert len(probe._clients) <= MOST_CLIENTS


def test_a_client_that_dawdles_is_left(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "CLIENT_BOUND", 0.05)
    assert say(probe, b"GET /live HTTP/1.1\r\n") == b""


def test_answers_change_with_what_is_so() -> None:
    words = {"/ready": "starting"}
    probe = Probe("127.0.0.1", 0)
    probe.start(words.get)
    try:
        assert ask(probe, "/ready") == (503, "starting\n")
        words["/ready"] = "ok"
        assert ask(probe, "/ready") == (200, "ok\n")
    finally:
        probe.close()


def test_a_port_that_is_taken_is_an_error_at_once(probe: Probe) -> None:
    with pytest.raises(OSError, match="Address already in use"):
        Probe(*address(probe))


def test_a_closed_probe_gives_its_port_back() -> None:
    first = Probe("127.0.0.1", 0)
    first.start(WORDS.get)
    assert ask(first, "/live") == (200, "ok\n")
    host, port = address(first)
    first.close()
    second = Probe(host, port)
    second.start(WORDS.get)
    assert ask(second, "/ready") == (503, "database\n")
    second.close()


def test_one_that_never_answered_can_be_closed() -> None:
    Probe("127.0.0.1", 0).close()


@pytest.mark.skipif(not socket.has_ipv6, reason="this system has no IPv6")
def test_an_address_may_be_one_of_version_6() -> None:
    try:
        probe = Probe("::1", 0)
    except OSError:
        pytest.skip("this system has no IPv6 address of its own")
    probe.start(WORDS.get)
    try:
        assert probe.url.startswith("http://[::1]:")
        with closing(HTTPConnection("::1", int(probe.url.rsplit(":", 1)[1]), timeout=PATIENCE)) as connection:
            connection.request("GET", "/live")
            assert connection.getresponse().status == 200
    finally:
        probe.close()
