#!/usr/bin/env python3
"""Many streams at once on `klotski serve`: `load_test.py KLOTSKI SOURCE_FOLDER [--streams N] [--idle N]`.

Every stream gets the text that its request gets alone, /health answers while they run, and connections that send
nothing change neither. Prints the delays; a limit holds for the fastest quarter, since other programs may keep a
machine busy."""
import argparse
import concurrent.futures
import math
import pathlib
import re
import resource
import selectors
import socket
import statistics
import sys
import threading
import time

from program import HANGS, SANITIZED
from server import Server, events, post_bytes

PROMPTS = ["Once upon a time", "The", "My fellow citizens,", "A", "Four score and seven years ago our fathers brought"]
HEALTH_SECONDS = 0.010
DELIVERY_SECONDS = 0.025
MOST_IDLE_KIB = 64


def body_of(number):
    return {"prompt": PROMPTS[number % len(PROMPTS)], "max_tokens": 16 + number % 17, "seed": number % 7,
            "temperature": number % 3 * 0.5, "ignore_eos": True}


def text_of(answer):
    """The text of a stream's answer; none where it did not end well."""
    _, _, body = answer.partition(b"\r\n\r\n")
    pieces, done = events(dechunked(body))
    return "".join(piece["choices"][0]["text"] for piece in pieces) if done else None


def dechunked(body):
    whole = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        whole, body = whole + rest[:length], rest[length + 2:]
    return whole


def stream_all(server, count):
    """The answers to `count` requests that are sent at once."""
    selector = selectors.DefaultSelector()
    answers = [bytearray() for _ in range(count)]
    for number in range(count):
        client = socket.create_connection(server.address)
        client.sendall(post_bytes("/v1/completions", {**body_of(number), "stream": True}))
        client.setblocking(False)
        selector.register(client, selectors.EVENT_READ, number)
    left, end = count, time.monotonic() + HANGS
    while left and time.monotonic() < end:
        for key, _ in selector.select(1):
            piece = key.fileobj.recv(65536)
            answers[key.data] += piece
            if not piece:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                left -= 1
    return answers


def watch_health(server, seconds, stop):
    while not stop.is_set():
        start = time.monotonic()
        with server.connect() as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = client.recv(4096)
        seconds.append(time.monotonic() - start)
        if b" 200 " not in answer[:20]:
            raise AssertionError(f"/health answered {answer[:80]!r}")
        time.sleep(0.005)


def delivered_within(server):
    """The shares of streamed events that the server handed to their socket so many seconds after the engine made them,
    by rising seconds."""
    _, text = server.get("/metrics")
    count = int(re.search(r"^klotski_delivery_seconds_count (\d+)$", text.decode(), re.M)[1])
    buckets = re.findall(r'^klotski_delivery_seconds_bucket{le="([\d.]+)"} (\d+)$', text.decode(), re.M)
    return {float(seconds): int(within) / count for seconds, within in buckets}


def idle_connections(server, count):
    """That many connections which send nothing; together they may take the server little memory."""
    def resident_kib():
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])

    before = resident_kib()
    clients = [server.connect() for _ in range(count)]
    end = time.monotonic() + HANGS
    while server.stats()["connections"] <= count:  # and that of the question
        if time.monotonic() > end:
            raise AssertionError(f"{server.stats()['connections']} of {count} connections are open")
        time.sleep(0.05)
    each = (resident_kib() - before) / max(count, 1)
    print(f"{count} idle connections take {each:.1f} KiB each")
    if not SANITIZED and count >= 1000 and each > MOST_IDLE_KIB:
        raise AssertionError("idle connections take too much memory")
    return clients


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=100 if SANITIZED else 1000)
    parser.add_argument("--idle", type=int, default=200, help="connections that send nothing")
    options = parser.parse_args(sys.argv[3:])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    arguments = ("--sequences", "64", "--context", "128", "--max-queue", str(options.streams),
                 "--max-connections", str(2 * options.streams + options.idle + 100))
    with Server(*arguments) as server:
        alone = {number: server.complete(**body_of(number))["choices"][0]["text"]
                 for number in range(60)}
        idle = idle_connections(server, options.idle)
        seconds, stop = [], threading.Event()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            watched = pool.submit(watch_health, server, seconds, stop)
            start = time.monotonic()
            answers = stream_all(server, options.streams)
            took = time.monotonic() - start
            stop.set()
            watched.result()
        texts = [text_of(bytes(answer)) for answer in answers]
        lost = [number for number, text in enumerate(texts) if text is None]
        if lost:
            raise AssertionError(f"{len(lost)} streams were not whole: {bytes(answers[lost[0]])[:300]!r}")
        for number, text in alone.items():
            if number < options.streams and texts[number] != text:
                raise AssertionError(f"stream {number}: {texts[number]!r}, alone {text!r}")
        for client in idle:
            client.close()
        stats = server.stats()
        quartile, middle, _ = statistics.quantiles(seconds, n=4)
        print(f"{options.streams} streams in {took:.1f} s, {stats['generated_tokens']} tokens, "
              f"{stats['preemptions']} preemptions, {stats['prefix']['hits']} prefix hits; "
              f"{len(seconds)} of /health: quarter {1e3 * quartile:.1f}, half {1e3 * middle:.1f}, "
              f"p99 {1e3 * statistics.quantiles(seconds, n=100)[98]:.1f}, most {1e3 * max(seconds):.1f} ms")
        shares = delivered_within(server)
        soon = shares[DELIVERY_SECONDS]
        p99 = min((seconds for seconds, share in shares.items() if share >= 0.99), default=math.inf)
        print(f"{100 * soon:.2f} % of the events were sent within {1e3 * DELIVERY_SECONDS:.0f} ms, "
              f"99 % within {1e3 * p99:.1f} ms")
        if not SANITIZED and quartile > HEALTH_SECONDS:
            raise AssertionError("/health is slow")
        if not SANITIZED and soon < 0.75:
            raise AssertionError("events are late")


if __name__ == "__main__":
    main()
