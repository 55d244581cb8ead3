"""A running `klotski serve`, and requests to it."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

from program import HANGS, KLOTSKI


class Server:
    """The program serving a model; ends with the `with` block."""

    def __init__(self, *arguments, model="tiny", ready=True, environment=None):
        self.process = subprocess.Popen([KLOTSKI, "serve", model, "--port", "0", *arguments],
                                        stderr=subprocess.PIPE, text=True, env=environment)
        self.said = []
        self.address = None
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._listening.wait(HANGS) or self.address is None:
            raise AssertionError("not listening: " + "".join(self.said))
        if ready:
            self.wait_until_ready()

    def _read(self):
        for line in self.process.stderr:
            self.said.append(line)
            if match := re.match(r"listening on http://(.*):(\d+)$", line):
                self.address = (match[1], int(match[2]))
                self._listening.set()
        self._listening.set()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)
        self.process.stderr.close()

    def stop(self, number=signal.SIGTERM):
        """The exit code after a signal."""
        self.process.send_signal(number)
        code = self.process.wait(HANGS)
        self._reader.join()
        return code

    @property
    def url(self):
        return "http://%s:%d" % self.address

    def wait_until_ready(self):
        end = time.monotonic() + HANGS
        while self.get("/ready")[0] != 200:
            if time.monotonic() > end:
                raise AssertionError("never ready: " + "".join(self.said))
            time.sleep(0.02)

    def connect(self):
        return socket.create_connection(self.address, timeout=HANGS)

    def request(self, method, path, body=None, headers=None):
        """Status, headers and bytes of the response."""
        connection = http.client.HTTPConnection(*self.address, timeout=HANGS)
        try:
            headers = dict(headers or {})
            if body is not None:
                headers.setdefault("Content-Type", "application/json")
                if not isinstance(body, (bytes, str)):
                    body = json.dumps(body)
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def get(self, path, **headers):
        status, _, body = self.request("GET", path, headers=headers)
        return status, body

    def post(self, path, body, **headers):
        """Status and document."""
        status, _, text = self.request("POST", path, body, headers)
        return status, json.loads(text)

    def complete(self, **body):
        status, document = self.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8, **body})
        if status != 200:
            raise AssertionError(document)
        return document

    def chat(self, content="Hello", **body):
        status, document = self.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": content}], "max_tokens": 8, **body})
        if status != 200:
            raise AssertionError(document)
        return document

    def raw(self, request, timeout=HANGS):
        """All that the server sends back for these bytes, until it closes or is silent for `timeout` seconds."""
        with self.connect() as client:
            client.settimeout(timeout)
            try:
                client.sendall(request)
            except OSError:
                pass  # refused before all was sent
            return receive_all(client)

    def stats(self):
        return json.loads(self.get("/stats")[1])

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def receive_all(client):
    received = b""
    try:
        while more := client.recv(65536):
            received += more
    except (ConnectionResetError, TimeoutError):
        pass
    return received


def post_bytes(path, body, *headers, close=True):
    """A request as it goes over the wire."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json",
             f"Content-Length: {len(body)}", *headers, *(["Connection: close"] if close else [])]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def events(text):
    """The documents of Server-Sent Events, and whether [DONE] was the last of them."""
    if isinstance(text, bytes):
        text = text.decode()
    values = []
    for event in text.split("\n\n"):
        if event:
            assert event.startswith("data: "), event
            values.append(event[6:])
    done = bool(values) and values[-1] == "[DONE]"
    return [json.loads(value) for value in values[:len(values) - done]], done
