#!/usr/bin/env python3
"""Sends random and mutated requests to every endpoint of `klotski serve`:
`hostile_http_test.py KLOTSKI SOURCE_FOLDER [--requests N] [--seed S]`.

The server may answer anything but a status of its own failure (5xx other than 503), may not end, may not keep
connections, and computes afterwards what it computed before. The default number of requests an endpoint is for every
build; 20000 are for a soak."""
import argparse
import collections
import json
import random
import re
import select
import socket
import sys
import tempfile
import time

from program import SANITIZED
from server import Server, post_bytes

PIECES = [b"\r\n", b"\x00", b"{", b"}", b"[", b"]", b"\"", b",", b":", b"-1", b"1e400", b"null", b"999999999999999999999",
          b"chunked", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"\xff", b"true", b"\\ud800", b" ", b"0",
          b"%00", b"\xf0\x9f\x98\x80", b"Expect: 100-continue\r\n", b"Connection: keep-alive\r\n", b"HTTP/1.0", b"[" * 300,
          b"{\"a\":" * 300, b"A" * 20000]
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
STORY = {"prompt": "Once upon a time", "max_tokens": 2}
FAILURE = re.compile(rb"(?:^|\r\n\r\n)HTTP/1\.\d 5(?!03)\d\d ")
STATUS = re.compile(rb"^HTTP/1\.1 (\d\d\d) ")


def get_bytes(path):
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()


def upload_bytes():
    row = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": STORY})
    body = ('--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--xyz\r\n'
            'Content-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
            f'{row}\n\r\n--xyz--\r\n')
    return ("POST /v1/files HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            f"Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode()


def uploaded(server):
    """The id of a file that the server has."""
    client = socket.create_connection(server.address)
    client.sendall(upload_bytes())
    answer = b""
    while piece := client.recv(65536):
        answer += piece
    client.close()
    return json.loads(answer.partition(b"\r\n\r\n")[2])["id"]


def with_file(request, file):
    """The request for the file that is there instead of "file-1"."""
    head, end, body = request.replace(b"file-1", file).partition(b"\r\n\r\n")
    return re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(body), head) + end + body


# Valid requests by endpoint, from which the others are made.
ENDPOINTS = {
    "/v1/completions": [post_bytes("/v1/completions", {**STORY, "n": 2, "stop": ["x"], "stream": True}),
                        post_bytes("/v1/completions", {**STORY, "prompt": [[1, 2], [3]], "logprobs": 2, "echo": True,
                                                       "logit_bias": {"5": 3}, "temperature": 0.7, "seed": 1})],
    "/v1/chat/completions": [post_bytes("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 1}),
                             post_bytes("/v1/chat/completions", {
                                 **CHAT, "stream": True, "stream_options": {"include_usage": True}, "tools": [
                                     {"type": "function", "function": {"name": "f", "parameters": {}}}]})],
    "/tokenize": [post_bytes("/tokenize", {"prompt": "Hello", "add_special_tokens": False}),
                  post_bytes("/tokenize", {"messages": CHAT["messages"]})],
    "/detokenize": [post_bytes("/detokenize", {"tokens": [1, 2, 300]})],
    "/v1/files": [upload_bytes(), get_bytes("/v1/files"), get_bytes("/v1/files/file-1/content"),
                  get_bytes("/v1/files/..%2f..%2fx")],
    "/v1/batches": [post_bytes("/v1/batches", {"input_file_id": "file-1", "endpoint": "/v1/completions",
                                               "completion_window": "24h", "metadata": {"a": "b"}}),
                    get_bytes("/v1/batches?limit=3"), get_bytes("/v1/batches/batch-1"),
                    post_bytes("/v1/batches/batch-1/cancel", {})],
    "/v1/models": [get_bytes("/v1/models"), get_bytes("/v1/models/tiny")],
    "/health": [get_bytes("/health")],
    "/ready": [get_bytes("/ready")],
    "/metrics": [get_bytes("/metrics")],
    "/stats": [get_bytes("/stats")],
    "/": [get_bytes("/")],
}


def random_value(generator, depth=0):
    """Any JSON, often of the wrong kind or size."""
    choice = generator.randrange(9 if depth < 3 else 7)
    if choice == 0:
        return generator.choice([0, -1, 1, 2**31, 2**63, 2**64, 10**30, -2**63 - 1, 1e-320, 1e308, 0.1])
    if choice == 1:
        return generator.choice(["", "x", "\x00", "\u2028", "\U0001F600", "a" * generator.randrange(3000), "</s>", "inf"])
    if choice == 2:
        return generator.choice([None, True, False])
    if choice == 3:
        return [generator.randrange(-2, 3000) for _ in range(generator.randrange(40))]
    if choice in (4, 5, 6):
        return generator.choice(["auto", "user", "stop", 16, 1.5, [], {}])
    if choice == 7:
        return [random_value(generator, depth + 1) for _ in range(generator.randrange(4))]
    return {generator.choice(["role", "content", "type", "x", "text"]): random_value(generator, depth + 1)
            for _ in range(generator.randrange(4))}


def with_random_fields(generator, request):
    """The request with some fields of its body replaced; the framing stays valid."""
    head, _, body = request.partition(b"\r\n\r\n")
    document = json.loads(body)
    for _ in range(generator.randint(1, 3)):
        field = generator.choice([*document, "n", "stop", "seed", "top_p", "temperature", "logprobs", "stream",
                                  "max_completion_tokens", "stream_options", "logit_bias", "tool_choice", "user"])
        document[field] = random_value(generator)
    path = head.split(b" ")[1].decode()
    return post_bytes(path, document)


def with_random_bytes(generator, request):
    request = bytearray(request)
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(request) + 1)
        length = generator.randint(0, 6)
        request[at:at + length] = generator.choice(
            (generator.choice(PIECES), bytes([generator.randrange(256)]), b"", bytes(request[at:at + 2 * length])))
    return bytes(request)


def hostile(generator, seeds):
    request = generator.choice(seeds)
    choice = generator.randrange(10)
    if choice == 0:
        return generator.randbytes(generator.randrange(1, 400))
    if choice == 1:
        return request[:generator.randrange(len(request))]
    if choice < 6 and request.startswith(b"POST") and b"multipart" not in request:
        return with_random_fields(generator, request)
    return with_random_bytes(generator, request)


class Client:
    """One request on its way."""
    SILENCE = 0.5  # seconds: the server may be waiting for the rest of a request

    def __init__(self, address, request):
        self.request, self.unsent, self.answer = request, request, b""
        self.socket = socket.create_connection(address)
        self.socket.setblocking(False)
        self.heard = time.monotonic()
        self.end = self.heard + 60

    def fileno(self):
        return self.socket.fileno()

    def send(self):
        try:
            self.unsent = self.unsent[self.socket.send(self.unsent):]
            self.heard = time.monotonic()
        except OSError:
            self.unsent = b""  # refused before all was sent

    def receive(self):
        """Whether the answer has ended."""
        try:
            piece = self.socket.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            return True
        self.answer = (self.answer + piece)[:4096]
        self.heard = time.monotonic()
        return not piece

    def silent(self):
        return time.monotonic() > self.heard + self.SILENCE


def attack(server, name, seeds, count, generator):
    """The answers' statuses, counted."""
    statuses = collections.Counter()
    running, left = [], count
    while running or left:
        while left and len(running) < 48:
            running.append(Client(server.address, hostile(generator, seeds)))
            left -= 1
        readable, writable, _ = select.select(running, [one for one in running if one.unsent], [], 0.1)
        for client in writable:
            client.send()
        for client in running[:]:
            if not (client in readable and client.receive()) and not client.silent():
                continue
            client.socket.close()
            running.remove(client)
            if FAILURE.search(client.answer):
                raise AssertionError(f"{name}: {client.answer[:200]!r} for {client.request!r}")
            match = STATUS.match(client.answer)
            statuses[match[1].decode() if match else "none" if not client.answer else "other"] += 1
        late = [client for client in running if client.end < time.monotonic()]
        if late:
            raise AssertionError(f"{name}: no end of the answer to {late[0].request!r}")
        if server.process.poll() is not None:
            raise AssertionError(f"{name}: the server ended: " + "".join(server.said))
    return statuses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=100 if SANITIZED else 500, help="requests an endpoint")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(sys.argv[3:])
    generator = random.Random(options.seed)
    with (tempfile.TemporaryDirectory() as jobs,
          Server("--max-tokens", "4", "--context", "200", "--kv-limit", "4MiB", "--jobs-folder", jobs) as server):
        expected = server.complete()["choices"][0]["text"]
        file = uploaded(server).encode()
        for name, seeds in ENDPOINTS.items():
            seeds = [with_file(request, file) for request in seeds]
            statuses = attack(server, name, seeds, options.requests, generator)
            print(name, dict(sorted(statuses.items())), flush=True)
            if statuses["other"]:
                raise AssertionError(f"{name}: answers that are no HTTP")
            if not statuses["400"] + statuses["404"]:
                raise AssertionError(f"{name}: no request was refused")
        if server.complete()["choices"][0]["text"] != expected:
            raise AssertionError("the text is another one than before")
        end = time.monotonic() + 30
        while server.stats()["running"] or server.stats()["connections"] > 1:
            if time.monotonic() > end:
                raise AssertionError(f"something is left: {server.stats()}")
            time.sleep(0.05)
        if server.stop() != 0:
            raise AssertionError("the server did not end well: " + "".join(server.said))
    print("all requests were answered or refused")


if __name__ == "__main__":
    main()
