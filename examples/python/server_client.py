#!/usr/bin/env python3
"""Starts `klotski serve`, asks it a question over HTTP and prints the answer as it comes: `server_client.py [MODEL]`."""
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request


def wait_until_ready(address):
    while True:
        try:
            with urllib.request.urlopen(f"{address}/ready"):
                return
        except urllib.error.HTTPError:  # still loading
            time.sleep(0.1)


def stream(address, text):
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 24, "stream": True}
    request = urllib.request.Request(f"{address}/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as lines:
        for line in lines:
            data = line.decode().removeprefix("data:").strip()
            if data and data != "[DONE]":
                for choice in json.loads(data)["choices"]:
                    yield choice["delta"].get("content") or ""


def main():
    model = sys.argv[1] if len(sys.argv) > 1 else "tiny"
    command = [sys.executable, "-m", "klotski", "serve", model, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = "http://" + server.stderr.readline().split("http://")[1].split()[0]
            wait_until_ready(address)
            for piece in stream(address, "Tell me about bridges."):
                print(piece, end="", flush=True)
            print()
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
