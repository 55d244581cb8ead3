#!/usr/bin/env python3
"""Runs the klotski program in a terminal: `terminal_test.py KLOTSKI SOURCE_FOLDER [unittest arguments]`."""
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from program import HANGS, KLOTSKI
from terminal import CTRL_A, CTRL_C, CTRL_D, LEFT, PASTE_BEGIN, PASTE_END, UP, Terminal

SLOW = ("--expert-slots", "2", "--disk-speed", "4MB")  # a read of the disk in every step
ANSWERED = r"tokens/s, first after [^\n]*\n"


class InTerminal(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="klotski-terminal-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def open(self, *arguments, **options):
        opened = Terminal(*arguments, **{"KLOTSKI_CACHE": self.folder / "cache", **options})
        self.addCleanup(opened.close)
        return opened

    def chat(self, *arguments, **options):
        chat = self.open("run", "tiny", "-n", "6", "--ignore-end", "--device", "cpu", *arguments, **options)
        self.greeting = chat.wait_for_prompt()
        return chat

    def say(self, chat, text):
        chat.send(text + "\r")
        answered = chat.wait_for(ANSWERED)
        chat.wait_for_prompt()
        return answered

    def saved(self, chat):
        """The conversation so far."""
        path = self.folder / "saved.json"
        chat.send(f"/save {path}\r")
        chat.wait_for(r"saved \d+ exchanges")
        chat.wait_for_prompt()
        messages = json.loads(path.read_text())["messages"]
        path.unlink()
        return messages

    def questions(self, chat):
        return [message["content"] for message in self.saved(chat) if message["role"] == "user"]

    def leave(self, chat):
        chat.send(CTRL_D)
        code, rest = chat.end()
        self.assertEqual(code, 0, rest)


class Chat(InTerminal):
    def test_an_answer_ends_with_one_line_about_its_speed(self):
        for columns in (80, 40):
            chat = self.chat(columns=columns)
            said = self.say(chat, "Hello")
            self.assertRegex(said, r"\d+ \+ 6 tokens in [\d.]+ s, [\d.]+ tokens/s, first after [\d.]+ s, \d+ % of experts in memory")
            self.leave(chat)

    def test_commands(self):
        chat = self.chat("--system", "Be brief.")
        chat.send("/help\r")
        listed = chat.wait_for(r"put a space before it\.\r\n")
        for name in ("/clear", "/system TEXT", "/save FILE", "Ctrl-C"):
            self.assertIn(name, listed)
        chat.wait_for_prompt()
        chat.send("/sav x\r")
        chat.wait_for("/sav: no such command; /help lists them")
        chat.wait_for_prompt()
        self.say(chat, "Hello")
        self.assertEqual([m["role"] for m in self.saved(chat)], ["system", "user", "assistant"])
        chat.send("/system Be long.\r")
        chat.wait_for("system message: Be long.")
        chat.wait_for_prompt()
        chat.send("/clear\r")
        chat.wait_for("begins anew")
        chat.wait_for_prompt()
        self.say(chat, " /clear is no command with a space before it")
        self.assertEqual([m["content"] for m in self.saved(chat)][:2],
                         ["Be long.", " /clear is no command with a space before it"])
        self.leave(chat)

    def test_a_file_that_cannot_be_saved_does_not_end_the_chat(self):
        old = self.folder / "old"
        old.write_text("precious")
        chat = self.chat()
        for name, said in ((old, "expected a new file"), (self.folder / "no" / "such", "cannot be created"),
                           ("", "expected a file name"), (self.folder, "expected a new file")):
            chat.send(f"/save {name}\r")
            chat.wait_for(said)
            chat.wait_for_prompt()
        self.assertEqual(old.read_text(), "precious")
        self.leave(chat)

    def test_arrow_keys_edit_and_recall(self):
        chat = self.chat()
        self.say(chat, "Helo" + LEFT + "l")
        self.say(chat, "world" + CTRL_A + "The ")
        self.say(chat, UP + UP + " again")
        self.assertEqual(self.questions(chat), ["Hello", "The world", "Hello again"])
        self.leave(chat)
        chat = self.chat()  # lines of the chat before
        self.say(chat, UP + UP)
        self.assertEqual(self.questions(chat), ["Hello again"])
        self.leave(chat)
        self.assertEqual((self.folder / "cache" / "chat-history").stat().st_mode & 0o777, 0o600)

    def test_pasted_lines_are_one_message(self):
        chat = self.chat()
        self.say(chat, "See: " + PASTE_BEGIN + "one\rtwo\r\nthree\n\n" + PASTE_END + " end")
        self.say(chat, "next")
        self.assertEqual(self.questions(chat), ["See: one\ntwo\nthree end", "next"])
        self.leave(chat)

    def test_characters_of_any_script_in_any_locale(self):
        for locale in ("C", "xx_YY", "C.UTF-8"):
            chat = self.chat(LC_ALL=locale)
            self.say(chat, "Ünï 漢字 🙂x" + "\x7f")
            self.assertEqual(self.questions(chat), ["Ünï 漢字 🙂"])
            self.leave(chat)

    def test_a_line_longer_than_a_terminal_passes_unedited(self):
        chat = self.chat()
        text = "word " * 5000
        for sent in (text, PASTE_BEGIN + text + PASTE_END):
            chat.send(sent + "\r")
            said = chat.wait_for(r"tokens with its system message[^\n]*\n")
            chat.wait_for_prompt()
        self.assertIn("send a shorter one", said)
        self.say(chat, "short")
        self.assertEqual(self.questions(chat), ["short"])
        self.leave(chat)

    def test_a_full_context_leaves_out_the_oldest_exchanges(self):
        chat = self.chat("--system", "Be brief.")
        remarks = 0
        for number in range(8):
            remarks += "the context of 1024 tokens is full: the model no longer sees the" in self.say(
                chat, f"{number} " + "word " * 250)
        self.assertGreaterEqual(remarks, 3)
        saved = self.saved(chat)
        self.assertEqual((saved[0]["role"], len(saved)), ("system", 17))
        self.leave(chat)

    def test_resizing_keeps_the_line(self):
        chat = self.chat(columns=80)
        chat.send("a line that is longer than forty columns are wide")
        chat.wait_for("wide")
        chat.resize(40)
        chat.signal(signal.SIGWINCH)
        chat.wait_for("a line that")  # drawn anew
        self.say(chat, " indeed")
        chat.resize(120)
        self.say(chat, "and on")
        self.assertEqual(self.questions(chat), ["a line that is longer than forty columns are wide indeed", "and on"])
        self.leave(chat)


class Stopping(InTerminal):
    def test_ctrl_c_stops_the_answer_and_keeps_the_conversation(self):
        chat = self.open("run", "tiny", "-n", "900", "--ignore-end", "--device", "cpu", *SLOW)
        chat.wait_for_prompt()
        for question in ("Hello", "And again"):
            chat.send(question + "\r")
            chat.wait_for(r"\n[^\n]*[a-z]{2,}")  # some of the answer
            chat.send(CTRL_C)
            self.assertRegex(chat.wait_for(ANSWERED), r"stopped: ")
            chat.wait_for_prompt()
        saved = self.saved(chat)
        self.assertEqual([m["role"] for m in saved], ["user", "assistant"] * 2)
        self.assertTrue(all(m["content"] for m in saved))
        self.leave(chat)

    def test_ctrl_c_drops_the_line(self):
        chat = self.chat()
        for _ in range(2):
            chat.send("not this")
            chat.wait_for("this")
            chat.send(CTRL_C)
            chat.wait_for_prompt()
        chat.send(CTRL_C)
        chat.wait_for_prompt()
        self.say(chat, "but this")
        self.assertEqual(self.questions(chat), ["but this"])
        self.leave(chat)

    def test_termination_leaves_the_terminal_in_order(self):
        chat = self.chat()
        chat.send("half a line")
        chat.wait_for("line")
        self.assertFalse(chat.is_in_line_mode())
        chat.signal(signal.SIGTERM)
        chat.wait_for(r"\x1b\[\?2004l")
        self.assertTrue(chat.is_in_line_mode())
        self.assertEqual(chat.end()[0], 143)

    def test_a_terminal_that_goes_away_ends_the_chat(self):
        chat = self.chat()
        chat.send("half a line")
        chat.signal(signal.SIGHUP)
        self.assertEqual(chat.end()[0], -signal.SIGHUP)


class Plain(InTerminal):
    def test_no_escapes_where_nobody_understands_them(self):
        chat = self.open("run", "tiny", "-n", "6", "--ignore-end", "--device", "cpu", TERM="dumb", NO_COLOR="1")
        chat.wait_for("> ")
        chat.send("Hello\r")
        chat.wait_for(ANSWERED)
        chat.wait_for("> ")
        chat.send(CTRL_D)
        code, rest = chat.end()
        self.assertEqual(code, 0, rest)

    def test_no_colour_at_all(self):
        for variables in ({}, {"NO_COLOR": "1"}):
            chat = self.chat(**variables)
            chat.send("Hello\r")
            chat.wait_for("tokens/s")
            self.assertNotRegex(chat.output, r"\x1b\[[0-9;]*m")
            chat.wait_for_prompt()
            self.leave(chat)

    def test_answers_go_to_a_file_and_the_rest_to_the_terminal(self):
        out = self.folder / "out"
        chat = self.chat(stdout=out)
        self.say(chat, "Hello")
        self.leave(chat)
        text = out.read_text()
        self.assertTrue(text.strip())
        for word in ("tokens/s", "> ", "\x1b"):
            self.assertNotIn(word, text)

    def test_without_a_terminal_lines_are_messages_and_no_commands(self):
        target = self.folder / "saved.json"
        result = subprocess.run([KLOTSKI, "run", "tiny", "-n", "3"], input=f"/save {target}\nHello\n".encode(),
                                capture_output=True, timeout=HANGS)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertGreaterEqual(result.stdout.count(b"\n"), 2)
        self.assertFalse(target.exists())


class Short(InTerminal):
    def lines(self, *arguments, **options):
        code, said = self.open("run", "tiny", "-p", "Once", "-n", "4", "--device", "cpu", *arguments, **options).end()
        self.assertEqual(code, 0, said)
        return [line for line in said.split("\r\n") if line]

    def test_one_line_at_the_start_and_one_at_the_end(self):
        lines = self.lines()
        self.assertEqual(len(lines), 3, lines)
        self.assertRegex(lines[0], r"^plan: klotski, groups of 1 x 1, bf16; .* experts: all 48 resident$")
        self.assertRegex(lines[2], r"tokens/s, first after")

    def test_tables_are_asked_for(self):
        said = "\n".join(self.lines("--plan"))
        self.assertIn("KV cache", said)
        self.assertNotIn("bubbles", said)
        said = "\n".join(self.lines("--verbose"))
        for word in ("KV cache", "bubbles", "tokens/s"):
            self.assertIn(word, said)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
