"""Heads, trailers and pipelined requests on a raw connection: bounded before they are parsed."""

import contextlib
import json
import random
import socket

import pytest

from restless_bandits.service.api.protocol import PIECE_BYTES, PIPELINED_REQUESTS
from restless_bandits.service.quotas import Quotas
from tests.service.clients import Process

HEAD, LINES = Quotas().head, Quotas().header_lines
HOST = b"host: 127.0.0.1\r\n"
GET = b"GET /health HTTP/1.1\r\n" + HOST


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Process(tmp_path_factory.mktemp("protocol") / "s.db") as process:
        yield process


def answers(server, *pieces, ends=False):
    """The bytes that a connection is answered until it is closed; a client that ends sends nothing more."""
    found = b""
    with contextlib.closing(socket.create_connection(("127.0.0.1", server.port), timeout=30)) as connection:
        # A service that refuses closes, whatever is still being sent.
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
            if ends:
                connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(1 << 16):
                found += part
    return found


def statuses(found):
    return [int(part[:3]) for part in found.split(b"HTTP/1.1 ")[1:]]


def padded(length, head=GET, end=b"\r\n"):
    """A head that is as long as asked for, with the header that closes the connection after the answer."""
    rest = length - len(head) - len(b"connection: close\r\nx: \r\n") - len(end)
    return head + b"connection: close\r\nx: " + rest * b"a" + b"\r\n" + end


def refused(found, word):
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n"), head[:80]
    assert b"connection: close" in head
    assert b"x-content-type-options: nosniff" in head
    said = json.loads(body)
    assert set(said) == {"error", "field"}
    assert word in said["error"]
    return True


def test_the_longest_head_is_answered(server):
    assert statuses(answers(server, padded(HEAD))) == [200]


def test_a_longer_head_is_refused(server):
    assert refused(answers(server, padded(HEAD + 1)), str(HEAD))


@pytest.mark.parametrize("begin", [GET + b"x: ", GET + b"x", b"GET /", b"G" * 9], ids=["value", "name", "path", "verb"])
def test_a_head_without_an_end_is_refused(server, begin):
    found = answers(server, begin, *(b"a" * (1 << 16) for _ in range(300)))
    if begin == b"G" * 9:  # the parser is the first to refuse it
        assert statuses(found) == [400]
        assert set(json.loads(found.partition(b"\r\n\r\n")[2])) == {"error", "field"}
    else:
        assert refused(found, str(HEAD))


def test_the_number_of_headers(server):
    def lines(count):
        return GET + b"connection: close\r\n" + b"".join(b"x%d: 1\r\n" % n for n in range(count - 2)) + b"\r\n"

    assert statuses(answers(server, lines(LINES))) == [200]
    assert refused(answers(server, lines(LINES + 1)), str(LINES))
    assert refused(answers(server, lines(20 * LINES)), str(LINES))


def chunked(server, body):
    head = f"POST /agents HTTP/1.1\r\nauthorization: Bearer {server.token}\r\n".encode() + HOST
    return head + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n" + body


def test_trailers_are_bounded_too(server):
    assert statuses(answers(server, chunked(server, b"0\r\nx: 1\r\n\r\n"))) == [422]
    long = [b"a" * (1 << 16) for _ in range(100)]
    assert refused(answers(server, chunked(server, b"0\r\nx: "), *long), str(HEAD))
    assert refused(answers(server, chunked(server, b"0\r\n"), 200 * b"x: 1\r\n"), str(LINES))
    assert refused(answers(server, chunked(server, b"1;"), *long), str(HEAD))


def test_a_trailer_is_no_header(server):
    """A token that comes after the body lets nobody in."""
    head = b"POST /agents HTTP/1.1\r\n" + HOST + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
    found = answers(server, head, f"authorization: Bearer {server.token}\r\n\r\n".encode())
    assert statuses(found) == [401]


def test_every_request_of_a_connection_has_its_own_count(server):
    one = GET + b"x: " + b"a" * (HEAD - 2000) + b"\r\n\r\n"
    last = padded(HEAD)
    assert statuses(answers(server, one, one, last)) == [200, 200, 200]
    assert statuses(answers(server, one + one + last)) == [200, 200, 200]
    # Whether the first one is answered depends on when the second one is found to be too long.
    found = answers(server, one + padded(HEAD + PIECE_BYTES + 1))
    assert statuses(found) in ([], [200], [200, 431])


def test_a_body_is_not_a_head(server):
    steps = [{"ask": {"request": f"{n:0200}"}} for n in range(1000)]
    headers = {"authorization": f"Bearer {server.token}", "host": "127.0.0.1", "connection": "close"}

    def post(path, message):
        body = json.dumps(message).encode()
        lines = {**headers, "content-length": len(body)}
        head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        return answers(server, head.encode() + b"\r\n" + body)

    assert statuses(post("/agents", {"name": "a", "arms": ["x", "y"], "learner": "round-robin"})) == [201]
    found = post("/agents/a/batch", {"operations": steps})
    assert statuses(found) == [200]
    assert len(json.loads(found.partition(b"\r\n\r\n")[2])["answers"]) == 1000


def test_waiting_requests_of_a_connection_are_bounded(server):
    one = GET + b"\r\n"
    few = (PIPELINED_REQUESTS // 2) * one
    assert statuses(answers(server, few + padded(200))) == [200] * (PIPELINED_REQUESTS // 2 + 1)
    found = statuses(answers(server, *[500 * one] * 20))
    assert set(found) <= {200}
    assert len(found) < 10_000


def test_bytes_that_are_no_requests(server):
    """Heads with bytes exchanged, cut and repeated: every one is answered or closed, and nothing fails."""
    rng = random.Random(11)
    right = f"POST /agents/b/ask?x=1 HTTP/1.1\r\nauthorization: Bearer {server.token}\r\nconnection: close\r\n".encode()
    right += HOST + b'content-type: application/json\r\ncontent-length: 15\r\n\r\n{"request":"1"}'
    known = {200, 400, 401, 403, 404, 413, 422, 431}
    for _ in range(400):
        sent = bytearray(right)
        for _ in range(rng.randrange(1, 6)):
            place = rng.randrange(len(sent))
            way = rng.randrange(3)
            if way == 0:
                sent[place] = rng.randrange(256)
            elif way == 1:
                del sent[place : place + rng.randrange(1, 20)]
            else:
                sent[place:place] = rng.choice([b"\r\n", b"\0", b": ", b" ", b"\xff" * 9, b"x: 1\r\n" * 30, right[:60]])
        found = answers(server, bytes(sent), ends=True)
        assert set(statuses(found)) <= known, (sent, found)
        assert b"Traceback" not in found
    assert statuses(answers(server, padded(200))) == [200]


def test_nothing_of_it_was_a_fault(server):
    """The last test of this file: the service ends in order, and its log holds nothing."""
    assert server.stop() == (0, "")
