"""The watch of one rank over its connections to others."""

from __future__ import annotations

import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from zoo.errors import RankError
from zoo.rank_watch.launcher import start_seconds
from zoo.rank_watch.peers import Peer, differs

GRACE = 2.0  # seconds in which another rank may say why a rank has failed


def process() -> str:
    """What two processes of one machine, and of one numbering of processes, have in common."""
    with suppress(OSError):
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


class Watch:
    """Watches the connections of a rank in a thread: of rank 0 to all others, of the others to rank 0."""

    def __init__(self, rank: int, peers: list[Peer], silence: float, stall: float) -> None:
        self.rank, self.peers, self.silence, self.stall = rank, peers, silence, stall
        self.collectives = 0  # of all ranks, that this one has called
        self._counts: tuple[int, ...] = ()  # of all ranks, when they last changed
        self._changed = time.monotonic()
        self.finished = False
        self.before_end: Callable[[str], None] = lambda line: None  # called with the line once it is printed
        # A pipe with one byte. Whichever thread reads the byte, here or in a forked child, prints the last line of the run.
        self._unclaimed, writer = os.pipe()
        os.write(writer, b"!")
        os.close(writer)
        self._guarded: int | None = None  # in a forked child: the process that it watches for
        threading.Thread(target=self._run, name="zoo-ranks", daemon=True).start()

    def _run(self, stop: int | None = None) -> None:
        """Send and expect heartbeats; with `stop`, until that descriptor can be read."""
        interval, sent = min(self.silence / 5, 1.0), 0.0
        while True:
            began = time.monotonic()
            sockets: list[Any] = [peer.connection for peer in self.peers if peer.open]
            readable = select.select([*sockets, *([] if stop is None else [stop])], [], [], interval)[0]
            if stop in readable:
                return
            now = time.monotonic()
            for peer in self.peers:
                # A process that was frozen, with the others, has heard nothing meanwhile: that is not their silence.
                peer.silent += min(now - began, 2 * interval)
                if peer.connection in readable:
                    self._take(peer)
                if now - sent >= interval:
                    peer.send(collectives=self.collectives)
            sent = now if now - sent >= interval else sent
            self._judge(now)

    def _take(self, peer: Peer) -> None:
        """Act on what a peer sent."""
        try:
            for message in peer.receive():
                if "end" in message:
                    self._exit(int(message["end"]))
                elif "done" in message:
                    peer.done = True
                    peer.mail.put(None)
                elif "error" in message:
                    peer.error = str(message["error"]), int(message["status"]), time.monotonic()
                elif "pid" in message:
                    peer.facts = message
                    peer.mail.put(None)
                elif "collectives" in message:
                    peer.collectives = int(message["collectives"])
                elif "mail" in message:
                    peer.mail.put(message["mail"])
        except OSError:
            peer.connection.close()
            if not peer.done and peer.error is None:
                self._end(f"error: rank {peer.rank} ended unexpectedly; all ranks end", peer)

    def _judge(self, now: float) -> None:
        """End the run for a peer that is silent, that failed while this rank did not, or that is out of step.

        Ranks are out of step when they have called different numbers of collectives and none calls another for `stall` seconds:
        then each waits for one that the others do not call.
        """
        counts = (self.collectives, *(peer.collectives for peer in self.peers))
        if counts != self._counts:
            self._counts, self._changed = counts, now
        elif self.rank == 0 and now - self._changed > self.stall:
            for peer in self.peers:
                if peer.open and peer.facts and not peer.done and peer.collectives != self.collectives:
                    self._end(
                        f"error: rank {peer.rank} is out of step for {self.stall:g} s: it has called "
                        f"{peer.collectives} collectives, rank 0 {self.collectives}; all ranks end",
                        peer,
                    )
        for peer in self.peers:
            if peer.open and peer.facts and peer.silent > self.silence:
                self._end(
                    f"error: rank {peer.rank} has not answered for {self.silence:g} s; all ranks end", peer
                )
            if peer.error is not None and now - peer.error[2] > GRACE:
                self._end(f"rank {peer.rank}: {peer.error[0]}", peer, peer.error[1])

    def claim(self) -> bool:
        """True for the first caller in this process and its forked children, which then prints the last line of the run."""
        return bool(os.read(self._unclaimed, 1))

    def _end(self, line: str, culprit: Peer, status: int = 1) -> None:
        """End all ranks, from the watching thread: rank 0 prints the line, or rank 1 where rank 0 is the culprit."""
        if not self.claim():
            return  # the main thread ends the process
        if self.rank == 0 or (self.rank == 1 and culprit.rank == 0):
            say(line)
        self.before_end(line)
        if culprit.open and culprit.error is None and culprit.facts.get("process") == process():
            with suppress(OSError):  # a stopped process cannot end itself
                os.kill(int(culprit.facts["pid"]), signal.SIGKILL)
        self._exit(status)

    def _exit(self, status: int) -> NoReturn:
        """End this process at once, and on rank 0 the others."""
        self.end_others(status)
        if self._guarded is not None:
            os.kill(self._guarded, signal.SIGKILL)
        os._exit(status)

    def end_others(self, status: int) -> None:
        """On rank 0: tell the other ranks to end with this status."""
        for peer in self.peers if self.rank == 0 else ():
            peer.send(end=status)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Watch while a call holds Python's lock, so that no thread runs: a forked child does it, and ends this process.

        The call may take `ZOO_RANKS_START` seconds. Meanwhile SIGTERM, which `mlx.launch` sends when a rank has ended, is ignored:
        the child says which rank that was, and ends the process.
        """
        reader, writer = os.pipe()
        main = threading.current_thread() is threading.main_thread()
        if main:  # Python's handlers wait for the lock, too
            before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if (child := os.fork()) == 0:
            try:
                os.close(writer)
                self._guarded = os.getppid()
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                late = threading.Timer(start_seconds(), self._overdue)
                late.start()
                self._run(stop=reader)
            finally:
                os._exit(0)
        os.close(reader)
        try:
            yield
        finally:
            os.close(writer)
            os.waitpid(child, 0)
            if main:
                signal.signal(signal.SIGTERM, before)

    def _overdue(self) -> None:
        if self.claim():
            if self.rank == 0:
                say("error: the ranks were not connected in time; all ranks end")
            self._exit(1)

    def check_alike(self, what: str, value: str) -> None:
        """Compare a value with that of rank 0. All ranks call it; RankError on rank 0, which ends the others, for a difference."""
        if self.rank:
            self.peers[0].send(mail=[what, value])
            self.peers[0].mail.get()
            return
        for peer in self.peers:
            theirs = peer.mail.get()
            if theirs != [what, value]:
                raise RankError(differs(peer.rank, what, theirs[1] if theirs else "nothing", value))
        self.release()

    def release(self) -> None:
        """On rank 0: let the others go on, which are in `wait`."""
        for peer in self.peers:
            peer.send(mail="go")

    def wait(self) -> None:
        """On the other ranks: wait for rank 0, without a bound but that it lives, and without using the processor."""
        self.peers[0].mail.get()

    def finish(self, patience: float) -> None:
        """Wait until all ranks have finished their work, which all call at its end, at most `patience` seconds."""
        deadline = time.monotonic() + patience
        if self.rank:
            self.peers[0].send(done=True)
        for peer in self.peers:
            while not peer.done and (left := deadline - time.monotonic()) > 0:
                with suppress(queue.Empty):
                    peer.mail.get(timeout=left)
            if not peer.done and self.rank == 0:
                raise RankError(f"rank {peer.rank} did not end with the others")
        self.finished = True
        for peer in self.peers if self.rank == 0 else ():
            peer.send(done=True)


def say(line: str) -> None:
    """Print a line of the zoo to the error stream that the process was started with, from any thread."""
    stream = sys.__stderr__
    os.write(stream.fileno() if stream else 2, f"zoo: {line}\n".encode())
