"""The program in a pseudo-terminal, as a person sees it."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

from program import HANGS, KLOTSKI

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"
UP, LEFT = "\x1b[A", "\x1b[D"
CTRL_A, CTRL_C, CTRL_D = "\x01", "\x03", "\x04"


class Terminal:
    """A program whose standard streams are a terminal of the given size."""

    def __init__(self, *arguments, columns=80, rows=24, stdout=None, **variables):
        environment = {**os.environ, "TERM": "xterm", **{k: str(v) for k, v in variables.items()}}
        self.output = ""
        self.process, self.master = pty.fork()
        if self.process == 0:
            if stdout is not None:
                os.dup2(os.open(stdout, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
            os.execve(KLOTSKI, [str(KLOTSKI), *map(str, arguments)], environment)
        self.status = None
        self.resize(columns, rows)

    def resize(self, columns, rows=24):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text):
        data = text.encode()
        while data:
            select.select([], [self.master], [], HANGS)
            data = data[os.write(self.master, data[:1024]):]
            self.read(0)

    def is_in_line_mode(self):
        """Whether the terminal echoes and hands out whole lines, as programs expect to find it."""
        local = termios.tcgetattr(self.master)[3]
        return local & termios.ICANON != 0 and local & termios.ECHO != 0

    def signal(self, number):
        os.kill(self.process, number)

    def read(self, seconds):
        """Takes what the program wrote; false at its end."""
        while select.select([self.master], [], [], seconds)[0]:
            seconds = 0
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return False
            if not data:
                return False
            self.output += data.decode(errors="replace")
        return True

    def wait_for(self, pattern):
        """Returns what came up to the end of the pattern, without escapes, and forgets it."""
        limit = time.monotonic() + HANGS
        more = True
        while not (found := re.search(pattern, self.output, re.DOTALL)):
            if not more or time.monotonic() > limit:
                raise AssertionError(f"{pattern!r} did not come, but {self.output!r}")
            more = self.read(0.05)
        seen, self.output = self.output[:found.end()], self.output[found.end():]
        return ESCAPES.sub("", seen)

    def wait_for_prompt(self):
        """The editor asks for paste marks whenever it begins to read."""
        return self.wait_for(r"\x1b\[\?2004h.*> ")

    def end(self):
        """Waits for the end of the program: its exit code and the rest of its output."""
        limit = time.monotonic() + HANGS
        while self.read(0.05) and time.monotonic() < limit:
            pass
        while True:
            process, status = os.waitpid(self.process, os.WNOHANG)
            if process:
                break
            if time.monotonic() > limit:
                os.kill(self.process, signal.SIGKILL)
                raise AssertionError(f"no end; so far {self.output!r}")
            time.sleep(0.01)
        os.close(self.master)
        self.process = None
        return os.waitstatus_to_exitcode(status), ESCAPES.sub("", self.output)

    def close(self):
        if self.process:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
            os.close(self.master)
            self.process = None
