"""A server in a process of its own, started by `zoo serve`."""

import os
import re
import subprocess
import sys
import threading

ADDRESS = re.compile(r"serving .* at (http://[\d.:]+)/")


class Server:
    """`zoo serve ARGUMENTS…` at a free port. `url` is its address, `lines` what it has printed; Python runs `program`."""

    def __init__(self, *arguments, key=None, program=("-m", "zoo")):
        self.lines, self._printed = [], threading.Event()
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"} | ({"ZOO_API_KEY": key} if key else {})
        command = [sys.executable, *program, "serve", "--port", "0", *map(str, arguments)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._url = None

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if found := ADDRESS.match(line):
                self._url = found[1]
                self._printed.set()
        self._printed.set()

    @property
    def url(self):
        """The address, once the first model is loaded."""
        self._printed.wait()
        assert self._url, "".join(self.lines)
        return self._url

    @property
    def v1(self):
        """The base address of OpenAI's interface."""
        return f"{self.url}/v1"

    def stop(self):
        """End the process as a service manager does; it has to end in order."""
        self.process.terminate()
        status = self.process.wait()
        self._reader.join()
        assert status == 0, "".join(self.lines)
