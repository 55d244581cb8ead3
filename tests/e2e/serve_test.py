#!/usr/bin/env python3
"""Runs `klotski serve` as clients do: `serve_test.py KLOTSKI SOURCE_FOLDER [unittest arguments]`."""
import concurrent.futures
import http.client
import json
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from program import HANGS, KLOTSKI, SANITIZED
from server import Server, events, post_bytes, receive_all

STORY = {"prompt": "Once upon a time", "max_tokens": 20}
# Runs until it is stopped: the model has 1024 positions.
LONG = {"prompt": "The", "max_tokens": 1000, "ignore_eos": True, "stream": True}


def klotski_run(*arguments):
    result = subprocess.run([KLOTSKI, "run", "tiny", *arguments, "--json"], capture_output=True, check=True,
                            timeout=HANGS)
    return json.loads(result.stdout)


def wait_for(condition):
    end = time.monotonic() + HANGS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.01)


class Served(unittest.TestCase):
    ARGUMENTS = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.ARGUMENTS)

    @classmethod
    def tearDownClass(cls):
        with cls.server as server:
            server.stop()

    def refused(self, status, path, body, param=None, says=""):
        found, document = self.server.post(path, body)
        self.assertEqual(found, status, document)
        self.assertEqual(list(document["error"]), ["message", "type", "param", "code"])
        self.assertEqual(document["error"]["param"], param)
        self.assertIn(says, document["error"]["message"])
        return document["error"]


class Endpoints(Served):
    def test_completions_are_what_run_gives(self):
        expected = klotski_run("-p", "Once upon a time", "-n", "20")
        body = self.server.complete(**STORY)
        self.assertEqual(body["object"], "text_completion")
        self.assertEqual(body["model"], "tiny")
        self.assertEqual(body["choices"][0]["text"], expected["text"])
        self.assertEqual(body["choices"][0]["finish_reason"], "length")
        self.assertEqual(body["usage"], {"prompt_tokens": expected["prompt_tokens"], "completion_tokens": 20,
                                         "total_tokens": expected["prompt_tokens"] + 20})

    def test_sampling_is_that_of_run(self):
        options = {"temperature": 1.2, "top_k": 50, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.1,
                   "presence_penalty": 0.3, "frequency_penalty": 0.2, "seed": 7}
        flags = [text for key, value in options.items() for text in ("--" + key.replace("_", "-"), str(value))]
        expected = klotski_run("-p", "The", "-n", "40", *flags)
        self.assertEqual(self.server.complete(prompt="The", max_tokens=40, **options)["choices"][0]["text"],
                         expected["text"])

    def test_chats_are_what_run_gives(self):
        expected = klotski_run("--chat", "-p", "Hello", "-n", "12")
        body = self.server.chat(max_tokens=12)
        self.assertEqual(body["object"], "chat.completion")
        self.assertEqual(body["choices"][0]["message"], {"role": "assistant", "content": expected["text"]})
        self.assertEqual(body["usage"]["prompt_tokens"], expected["prompt_tokens"])

    def test_streams_are_the_same_text_in_pieces(self):
        whole = self.server.complete(**STORY)
        _, headers, text = self.server.request("POST", "/v1/completions", {
            **STORY, "stream": True, "stream_options": {"include_usage": True}})
        self.assertEqual(headers["Content-Type"], "text/event-stream; charset=utf-8")
        pieces, done = events(text)
        self.assertTrue(done)
        self.assertEqual(pieces[-1]["usage"], whole["usage"])
        self.assertEqual(pieces[-1]["choices"], [])
        texts = [piece["choices"][0]["text"] for piece in pieces[:-1]]
        self.assertGreater(len(texts), 10)
        self.assertEqual("".join(texts), whole["choices"][0]["text"])
        reasons = [piece["choices"][0]["finish_reason"] for piece in pieces[:-1]]
        self.assertEqual(reasons, [None] * (len(reasons) - 1) + ["length"])
        self.assertEqual(len({piece["id"] for piece in pieces}), 1)

    def test_a_streamed_chat_begins_with_its_role(self):
        whole = self.server.chat(n=2, temperature=1, seed=3)
        _, _, text = self.server.request("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "n": 2, "temperature": 1,
            "seed": 3, "stream": True})
        pieces, done = events(text)
        self.assertTrue(done)
        self.assertNotIn("usage", pieces[-1])
        for index in (0, 1):
            mine = [piece["choices"][0] for piece in pieces if piece["choices"][0]["index"] == index]
            self.assertEqual(mine[0]["delta"]["role"], "assistant")
            self.assertEqual("".join(choice["delta"].get("content", "") for choice in mine),
                             whole["choices"][index]["message"]["content"])
            self.assertEqual(mine[-1]["finish_reason"], "length")

    def test_choices_differ_and_the_first_is_that_of_the_seed(self):
        options = {"prompt": "The", "max_tokens": 30, "temperature": 1.5, "seed": 11}
        several = self.server.complete(**options, n=3)
        texts = [choice["text"] for choice in several["choices"]]
        self.assertEqual([choice["index"] for choice in several["choices"]], [0, 1, 2])
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(texts[0], self.server.complete(**options)["choices"][0]["text"])
        self.assertEqual(several["usage"]["prompt_tokens"], self.server.complete(**options)["usage"]["prompt_tokens"])

    def test_without_a_seed_answers_differ(self):
        texts = {self.server.complete(prompt="The", max_tokens=20, temperature=1.5)["choices"][0]["text"]
                 for _ in range(4)}
        self.assertGreater(len(texts), 1)

    def test_several_prompts_as_text_or_tokens(self):
        _, tokens = self.server.post("/tokenize", {"prompt": "Once upon a time"})
        body = self.server.complete(prompt=["Once upon a time", "The", tokens["tokens"]], n=2)
        texts = [choice["text"] for choice in body["choices"]]
        self.assertEqual(len(texts), 6)
        self.assertEqual(texts[0:2], texts[4:6])
        self.assertEqual(texts[0], self.server.complete()["choices"][0]["text"])
        self.assertEqual(texts[2], self.server.complete(prompt="The")["choices"][0]["text"])
        alone = self.server.complete(prompt=tokens["tokens"])
        self.assertEqual(alone["choices"][0]["text"], texts[0])

    def test_echo(self):
        body = self.server.complete(echo=True)
        self.assertEqual(body["choices"][0]["text"],
                         "Once upon a time" + self.server.complete()["choices"][0]["text"])

    def test_no_part_of_a_stop_string_is_sent(self):
        whole = self.server.complete(**STORY)["choices"][0]["text"]
        for stop in (whole[7:20], whole[3], [whole[9:40], "never written"]):
            first = stop if isinstance(stop, str) else stop[0]
            expected = whole[:whole.index(first)]
            body = self.server.complete(**STORY, stop=stop)
            self.assertEqual(body["choices"][0]["text"], expected)
            self.assertEqual(body["choices"][0]["finish_reason"], "stop")
            _, _, text = self.server.request("POST", "/v1/completions", {**STORY, "stop": stop, "stream": True})
            pieces, _ = events(text)
            self.assertEqual("".join(piece["choices"][0]["text"] for piece in pieces), expected)

    def test_logprobs(self):
        plain = self.server.complete(**STORY)
        body = self.server.complete(**STORY, logprobs=3)
        logprobs = body["choices"][0]["logprobs"]
        self.assertEqual(body["choices"][0]["text"], plain["choices"][0]["text"])
        self.assertEqual("".join(logprobs["tokens"]), body["choices"][0]["text"])
        for token, logprob, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]):
            self.assertEqual(max(top.values()), logprob)  # greedy
            self.assertEqual(top[token], logprob)
            self.assertLess(logprob, 0)
        chat = self.server.chat(logprobs=True, top_logprobs=2)["choices"][0]
        content = chat["logprobs"]["content"]
        self.assertEqual("".join(entry["token"] for entry in content), chat["message"]["content"])
        self.assertTrue(all(len(entry["top_logprobs"]) == 2 for entry in content))
        self.assertEqual(bytes(content[0]["bytes"]).decode(), content[0]["token"])

    def test_logit_bias(self):
        _, tokens = self.server.post("/tokenize", {"prompt": " of", "add_special_tokens": False})
        token = str(tokens["tokens"][-1])
        self.assertTrue(self.server.complete()["choices"][0]["text"].startswith(" of"))
        self.assertFalse(self.server.complete(logit_bias={token: -100})["choices"][0]["text"].startswith(" of"))
        self.assertEqual(self.server.complete(logit_bias={token: 100}, max_tokens=3)["choices"][0]["text"],
                         " of of of")

    def test_tools_reach_the_template(self):
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
        plain = self.server.chat()["usage"]["prompt_tokens"]
        with_tools = self.server.chat(tools=tools)
        self.assertGreater(with_tools["usage"]["prompt_tokens"], plain + 20)
        self.assertEqual(self.server.chat(tools=tools, tool_choice="none")["usage"]["prompt_tokens"], plain)

    def test_models(self):
        _, body = self.server.get("/v1/models")
        model = json.loads(body)["data"][0]
        self.assertEqual((model["id"], model["object"]), ("tiny", "model"))
        self.assertEqual(json.loads(self.server.get("/v1/models/tiny")[1]), model)
        self.assertEqual(self.server.get("/v1/models/other")[0], 404)

    def test_tokenize_and_back(self):
        status, body = self.server.post("/tokenize", {"prompt": "Hello there", "add_special_tokens": False})
        self.assertEqual((status, body["count"]), (200, len(body["tokens"])))
        _, text = self.server.post("/detokenize", {"tokens": body["tokens"]})
        self.assertEqual(text["prompt"], "Hello there")
        _, chat = self.server.post("/tokenize", {"messages": [{"role": "user", "content": "Hello"}]})
        self.assertEqual(chat["count"], self.server.chat()["usage"]["prompt_tokens"])

    def test_health_figures_and_page(self):
        self.assertEqual(self.server.get("/health")[0], 200)
        self.server.complete()
        status, text = self.server.get("/metrics")
        self.assertEqual(status, 200)
        for name in ("klotski_requests_total", "klotski_generated_tokens_total", "klotski_queue", "klotski_running",
                     "klotski_time_to_first_token_seconds_bucket", "klotski_time_per_token_seconds_count",
                     "klotski_experts_found_total", "klotski_memory_bytes"):
            self.assertRegex(text.decode(), rf"(?m)^{name}[ {{]")
        stats = self.server.stats()
        self.assertTrue(stats["ready"])
        self.assertGreater(stats["generated_tokens"], 0)
        self.assertGreater(stats["memories"][0]["limit_bytes"], stats["memories"][0]["used_bytes"])
        status, page = self.server.get("/")
        self.assertEqual(status, 200)
        self.assertNotRegex(page.decode(), r"https?://|src=|href=")
        self.assertIn("prefers-color-scheme", page.decode())

    def test_head_has_no_body(self):
        status, headers, body = self.server.request("HEAD", "/health")
        self.assertEqual((status, body), (200, b""))
        self.assertEqual(headers["Content-Length"], "15")


class Refusals(Served):
    def test_fields_out_of_bounds(self):
        for field, value in (("n", 0), ("n", 10**9), ("max_tokens", 0), ("temperature", -1), ("top_p", 2),
                             ("seed", 2**64), ("stop", ["a"] * 5), ("stop", ""), ("logprobs", 100),
                             ("suffix", "x"), ("best_of", 3), ("guided_json", {"a": 1}), ("stream", "yes"),
                             ("logit_bias", {"99999": 1}), ("logit_bias", {"x": 1}),
                             ("response_format", {"type": "json_object"}), ("prompt", []),
                             ("prompt", [99999]), ("prompt", [-1]), ("prompt", [1] * 1024), ("prompt", "a " * 2000),
                             ("prompt", "a" * 500_000)):
            self.refused(400, "/v1/completions", {**STORY, field: value}, param=field)

    def test_messages(self):
        for messages in ([], None, "hi", [{}], [{"role": "user"}], [{"role": "user", "content": 5}],
                         [{"role": "nobody", "content": "x"}], [{"role": "user", "content": "a " * 3000}],
                         [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]):
            self.refused(400, "/v1/chat/completions", {"messages": messages}, param="messages")
        self.refused(400, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}],
                                                   "tool_choice": "required"}, param="tool_choice")

    def test_the_context_is_named(self):
        error = self.refused(400, "/v1/completions", {"prompt": [5] * 1024}, param="prompt")
        self.assertEqual(error["code"], "context_length_exceeded")
        body = self.server.complete(prompt=[5] * 1023, max_tokens=50)
        self.assertEqual(body["usage"]["completion_tokens"], 1)
        self.assertEqual(body["choices"][0]["finish_reason"], "length")

    def test_another_model(self):
        error = self.refused(404, "/v1/completions", {**STORY, "model": "gpt-5"}, param="model")
        self.assertEqual(error["code"], "model_not_found")

    def test_bodies_that_are_no_requests(self):
        for body in (b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"prompt": "a", "prompt": "b"}', b"[" * 100_000,
                     b'{"prompt": "\\ud800"}', b'{"prompt": "a", "seed": ' + b"9" * 10_000 + b"}",
                     b'{"prompt": "a", "temperature": 1e400}', b'{"prompt": "a\x00"}'):
            status, _, text = self.server.request("POST", "/v1/completions", body)
            self.assertEqual(status, 400, body[:40])
            self.assertIn("error", json.loads(text))

    def test_paths_methods_and_types(self):
        for path in ("/nothing", "/v1", "/v1/chat", "//", "/../etc/passwd", "/%2e%2e/etc/passwd", "/%00",
                     "/v1/completions/", "/v1/modelsx"):
            self.assertEqual(self.server.get(path)[0], 404, path)
        status, headers, _ = self.server.request("GET", "/v1/completions")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            self.assertEqual(self.server.request(method, "/health")[0], 405, method)
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""):
            self.assertEqual(self.server.post("/v1/completions", STORY, **{"Content-Type": kind})[0], 415, kind)
        self.assertEqual(self.server.post("/v1/completions", STORY, **{"Content-Encoding": "gzip"})[0], 415)
        self.assertEqual(self.server.post("/v1/completions", STORY,
                                          **{"Content-Type": "Application/JSON; charset=utf-8"})[0], 200)
        self.assertEqual(self.server.get("/health?x=1")[0], 200)

    def test_bodies_and_heads_are_bounded(self):
        declared = self.server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                                   b"Content-Length: 100000000\r\n\r\n")
        self.assertIn(b" 413 ", declared.split(b"\r\n")[0])
        chunked = (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                   b"Transfer-Encoding: chunked\r\n\r\n" + b"100000\r\n" + b"x" * 0x100000 + b"\r\n")
        self.assertIn(b" 413 ", self.server.raw(chunked + (b"100000\r\n" + b"x" * 0x100000 + b"\r\n") * 9)[:20])
        self.assertIn(b" 431 ", self.server.raw(b"GET /health HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n")[:20])
        many = b"".join(b"X-%d: 1\r\n" % i for i in range(10_000))
        self.assertIn(b" 431 ", self.server.raw(b"GET /health HTTP/1.1\r\n" + many + b"\r\n")[:20])

    def test_requests_that_are_no_http(self):
        body = json.dumps(STORY).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        for request in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
                        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET\r\n\r\n", b"GET /health HTTP/9.9\r\n\r\n",
                        b"GET /health HTTP/1.1\r\nbad header\r\n\r\n", b"GET /health HTTP/1.1\r\na : b\r\n\r\n",
                        b"GET /hea\x00lth HTTP/1.1\r\n\r\n",
                        head + b"Content-Length: -5\r\n\r\n" + body,
                        head + b"Content-Length: 99999999999999999999999\r\n\r\n" + body,
                        head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + body,
                        head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + body,
                        head + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n" + body,
                        head + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n" + body):
            answer = self.server.raw(request)
            self.assertRegex(answer.split(b"\r\n")[0], rb"^HTTP/1\.1 4\d\d ", request[:60])
        self.assertEqual(self.server.get("/health")[0], 200)

    def test_expectations(self):
        with self.server.connect() as client:
            body = json.dumps(STORY).encode()
            client.sendall(post_bytes("/v1/completions", body, "Expect: 100-continue")[:-len(body)])
            self.assertTrue(client.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n\r\n"))
            client.sendall(body)
            self.assertTrue(receive_all(client).startswith(b"HTTP/1.1 200 OK"))
        self.assertIn(b" 417 ", self.server.raw(post_bytes("/v1/completions", STORY, "Expect: miracles"))[:20])

    def test_requests_one_after_the_other_and_pipelined(self):
        connection = http.client.HTTPConnection(*self.server.address, timeout=HANGS)
        for path, status in (("/health", 200), ("/nothing", 404), ("/v1/models", 200)):
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            self.assertEqual(response.status, status)
        for _ in range(2):
            connection.request("POST", "/v1/completions", json.dumps({**STORY, "stream": True}),
                               {"Content-Type": "application/json"})
            self.assertTrue(events(connection.getresponse().read())[1])
        connection.close()
        one = post_bytes("/v1/completions", STORY, close=False)
        answer = self.server.raw(one + one + b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
        self.assertEqual(answer.count(b"HTTP/1.1 200 OK"), 3)

    def test_http_1_0_streams_until_the_end(self):
        request = post_bytes("/v1/completions", {**STORY, "stream": True}).replace(b"HTTP/1.1", b"HTTP/1.0")
        with self.server.connect() as client:
            client.sendall(request)
            head, body = receive_all(client).split(b"\r\n\r\n", 1)
        self.assertNotIn(b"chunked", head)
        self.assertTrue(events(body)[1])

    def test_mutated_requests(self):
        """Whatever comes, the server answers with its own statuses, and goes on as before."""
        generator = random.Random(20261)
        seeds = [post_bytes("/v1/completions", {**STORY, "max_tokens": 2, "n": 2, "stop": ["x"], "stream": True}),
                 post_bytes("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2,
                                                     "logprobs": True, "top_logprobs": 1}),
                 post_bytes("/tokenize", {"prompt": "Hello"}), post_bytes("/detokenize", {"tokens": [1, 2]}),
                 b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"]
        pieces = [b"\r\n", b"\x00", b"{", b"}", b"[", b"\"", b",", b":", b"-1", b"1e400", b"null", b"999999999999",
                  b"chunked", b"Content-Length: 3\r\n", b"\xff", b"true", b"\\ud800", b" ", b"0", b"%00"]
        expected = self.server.complete(**STORY)["choices"][0]["text"]

        def mutated():
            request = bytearray(generator.choice(seeds))
            for _ in range(generator.randint(1, 4)):
                at = generator.randrange(len(request))
                length = generator.randint(0, 6)
                request[at:at + length] = generator.choice(
                    (generator.choice(pieces), bytes([generator.randrange(256)]), b"",
                     bytes(request[at:at + 2 * length])))
            return bytes(request)

        def send(request):  # some wait for the rest of a body
            return request, self.server.raw(request, timeout=0.3)

        answered = 0
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            for request, answer in pool.map(send, [mutated() for _ in range(600 if SANITIZED else 3000)]):
                if answer:
                    answered += 1
                    self.assertRegex(answer.split(b"\r\n")[0], rb"^HTTP/1\.1 (?:200|100|4\d\d|503) ", request)
        self.assertGreater(answered, 100)
        self.assertEqual(self.server.complete(**STORY)["choices"][0]["text"], expected)
        wait_for(lambda: self.server.stats()["running"] == 0)


class Company(Served):
    """Many clients at once."""
    ARGUMENTS = ("--sequences", "32", "--max-queue", "512")

    def read_stream(self, body):
        _, _, text = self.server.request("POST", "/v1/completions", {**body, "stream": True})
        pieces, done = events(text)
        self.assertTrue(done)
        return "".join(piece["choices"][0]["text"] for piece in pieces)

    def test_200_streams_at_once_get_what_each_gets_alone(self):
        bodies = [{"prompt": prompt, "max_tokens": 4 + i % 13, "temperature": i % 3 * 0.5, "seed": i}
                  for i, prompt in enumerate(["Once upon a time", "The", "My fellow citizens,", "A"] * 50)]
        alone = {}
        for i in random.Random(5).sample(range(200), 20):
            alone[i] = self.server.complete(**bodies[i])["choices"][0]["text"]
        with concurrent.futures.ThreadPoolExecutor(200) as pool:
            texts = list(pool.map(self.read_stream, bodies))
        for i, text in alone.items():
            self.assertEqual(texts[i], text, bodies[i])
        stats = self.server.stats()
        self.assertEqual((stats["running"], stats["queue"]), (0, 0))

    def test_health_answers_while_all_generate(self):
        clients = []
        for _ in range(40):
            client = self.server.connect()
            client.sendall(post_bytes("/v1/completions", LONG))
            clients.append(client)
        for client in clients[:10]:
            client.recv(1)  # it has begun
        seconds = []
        for _ in range(50):
            start = time.monotonic()
            self.assertEqual(self.server.get("/health")[0], 200)
            seconds.append(time.monotonic() - start)
        self.assertLess(min(seconds), 0.05)
        for client in clients:
            client.close()
        wait_for(lambda: self.server.stats()["running"] == 0)

    def test_a_client_that_goes_frees_its_room(self):
        descriptors = self.server.descriptors()
        generator = random.Random(7)
        for i in range(60):
            client = self.server.connect()
            request = post_bytes("/v1/completions", {**LONG, "stream": i % 3 != 0, "n": 1 + i % 2})
            client.sendall(request[:generator.choice((10, len(request) - 5, len(request), len(request)))])
            if i % 2:
                time.sleep(generator.random() * 0.05)
            if i % 5 == 0:  # reset instead of an orderly end
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            client.close()
        wait_for(lambda: self.server.stats()["running"] == 0 and self.server.stats()["queue"] == 0)
        wait_for(lambda: self.server.descriptors() <= descriptors)
        self.assertEqual(self.server.complete(**STORY)["usage"]["completion_tokens"], 20)


class Limits(unittest.TestCase):
    def test_a_full_queue(self):
        with Server("--max-queue", "2", "--sequences", "1") as server:
            clients = []
            refusals = []

            def refused():
                """One more that stays, and one that asks whether there is room."""
                clients.append(server.connect())
                clients[-1].sendall(post_bytes("/v1/completions", LONG))
                answer = server.request("POST", "/v1/completions", {**STORY, "n": 2, "max_tokens": 1})
                if answer[0] != 200:
                    refusals.append(answer)
                return refusals

            wait_for(refused)
            status, headers, text = refusals[0]
            self.assertEqual((status, headers["Retry-After"]), (429, "1"))
            self.assertEqual(json.loads(text)["error"]["code"], "queue_full")
            self.assertEqual(server.get("/health")[0], 200)
            for client in clients:
                client.close()
            wait_for(lambda: server.stats()["running"] == 0)
            self.assertEqual(server.complete()["usage"]["completion_tokens"], 8)

    def test_a_request_timeout(self):
        with Server("--request-timeout", "0.1") as server:
            status, body = server.post("/v1/completions", {**LONG, "stream": False})
            self.assertEqual((status, body["error"]["code"]), (408, "timeout"))
            while True:  # a busy machine may not even begin in this time
                status, _, text = server.request("POST", "/v1/completions", LONG)
                if status == 200:
                    break
                self.assertEqual(status, 408)
            pieces, done = events(text)
            self.assertFalse(done)
            self.assertEqual(pieces[-1]["error"]["code"], "timeout")

    def test_too_many_connections(self):
        with Server("--max-connections", "4") as server:
            clients = [server.connect() for _ in range(4)]
            wait_for(lambda: b" 503 " in server.raw(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")[:20])
            for client in clients:
                client.close()
            wait_for(lambda: b" 200 " in server.raw(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")[:20])

    def test_keys(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "keys"
            file.write_text("secret\nother key\r\n\n")
            with Server("--api-key-file", str(file), "--served-name", "my/model") as server:
                for path in ("/v1/models", "/metrics", "/stats", "/nothing", "/v1/completions"):
                    for value in (None, "Bearer wrong", "Bearer Secret", "Bearer secretx", "Bearer ", "secret", "Basic secret"):
                        status, headers, body = server.request("GET", path, headers={"Authorization": value} if value else {})
                        self.assertEqual(status, 401, (path, value))
                        self.assertEqual(json.loads(body)["error"]["type"], "authentication_error")
                    self.assertEqual(server.get(path + "?api_key=secret")[0], 401)
                for path in ("/health", "/ready", "/"):
                    self.assertEqual(server.get(path)[0], 200)
                for key in ("secret", "other key"):
                    self.assertEqual(server.get("/v1/models", Authorization="Bearer " + key)[0], 200)
                    status, body = server.post("/v1/completions", {**STORY, "model": "my/model"},
                                               Authorization="bearer " + key)
                    self.assertEqual((status, body["model"]), (200, "my/model"))
                self.assertEqual(server.get("/v1/models/my%2Fmodel", Authorization="Bearer secret")[0], 200)

    def test_slow_heads_and_idle_connections_end(self):
        if SANITIZED:
            self.skipTest("takes a quarter of a minute")
        with Server() as server:
            slow = server.connect()
            slow.sendall(b"GET /health HT")
            start = time.monotonic()
            self.assertEqual(receive_all(slow), b"")
            self.assertLess(time.monotonic() - start, 30)
            slow.close()


class Life(unittest.TestCase):
    def test_alive_before_it_is_ready(self):
        with Server(ready=False) as server:
            self.assertEqual(server.get("/health")[0], 200)
            self.assertIn(server.get("/ready")[0], (200, 503))
            server.wait_until_ready()
            self.assertEqual(server.stop(), 0)

    def test_a_signal_lets_requests_end(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Server("--drain", "60") as server:
                with server.connect() as client:
                    client.sendall(post_bytes("/v1/completions", LONG, close=False))
                    client.recv(1)  # it has begun
                    server.process.send_signal(number)
                    answer = receive_all(client)
                self.assertTrue(answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), answer[-100:])
                self.assertEqual(server.process.wait(HANGS), 0)

    def test_requests_are_told_when_their_time_is_over(self):
        with Server("--drain", "0", "--sequences", "64") as server:
            clients = []
            for _ in range(20):
                clients.append(server.connect())
                clients[-1].sendall(post_bytes("/v1/completions", LONG))
            for client in clients:
                client.recv(1)  # it has begun
            start = time.monotonic()
            code = server.stop()
            answers = [receive_all(client) for client in clients]
            for client in clients:
                client.close()
            if code == 0:
                self.skipTest("all requests had ended")
            self.assertEqual(code, 143)
            self.assertLess(time.monotonic() - start, 30)
            self.assertTrue(any(b'"code":"stopping"' in answer for answer in answers))
            self.assertTrue(all(answer.endswith(b"0\r\n\r\n") for answer in answers if b"data: " in answer))

    def test_a_disk_that_never_answers_ends_the_server(self):
        result = subprocess.run([KLOTSKI, "serve", "tiny", "--port", "0", "--disk-speed", "1", "--stall-limit", "1"],
                                capture_output=True, timeout=HANGS, text=True)
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertRegex(result.stderr, r"no task has ended for \S+ s: at work: \[.*(read|load|fetch)")

    def test_what_cannot_be_served(self):
        def refused(code, *arguments, says):
            result = subprocess.run([KLOTSKI, "serve", *arguments], capture_output=True, timeout=HANGS, text=True)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn(says, result.stderr)

        refused(2, "tiny", "--port", "70000", says="--port")
        refused(2, "tiny", "--host", "nowhere", says="--host")
        refused(2, "tiny", "--port", "0", "--api-key-file", "/dev/null", says="--api-key-file")
        refused(4, "tiny", "--port", "0", "--ram", "20MiB", "--context", "1024", says="too little")
        result = subprocess.run([KLOTSKI, "serve", "no-such-model", "--port", "0"], capture_output=True, timeout=HANGS)
        self.assertNotEqual(result.returncode, 0)
        self.assertNotIn(b"listening", result.stderr)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            refused(2, "tiny", "--port", str(taken.getsockname()[1]), says="cannot listen")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
