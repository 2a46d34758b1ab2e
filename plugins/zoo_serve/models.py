"""The models of a server: which are loaded, who uses them, and what serves each."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlx.utils import tree_flatten

from zoo import runtime
from zoo.cache import CachePolicy
from zoo.describe.facts.memory import policy_bytes
from zoo.frozen import Frozen, frozen
from zoo.generation.loop.engine import Engine
from zoo.generation.loop.prompt import has_chat_template
from zoo.generation.prefix_cache import PromptCache
from zoo.generation.prefix_cache import unsupported as uncachable
from zoo.loading import Loaded
from zoo_serve.conversations import Conversations

HELD_SECONDS = 2  # that the worker waits at most for requests that still hold a dropped model
PREFILL_SHARE = 1 / 4  # of the time, while answers are generated


@frozen()
class Source(Frozen):
    """A model that the server offers under `name`.

    `load` reads it, `settings` gives the defaults of its answers, and `about` is what `/v1/models` says of it. With an
    `adapter`, it is the model of the source called `base`, which was loaded with an adapter of that name.
    """

    name: str
    load: Callable[[], Loaded]
    settings: Callable[[Loaded], Mapping[str, Any]]
    about: Mapping[str, Any]
    base: str | None = None
    adapter: str | None = None

    @property
    def holder(self) -> str:
        """The name of the source whose model it uses."""
        return self.base or self.name


class ServedModel:
    """A model in memory, with its engine, prompt cache and defaults. Made and run by the worker's thread alone."""

    def __init__(self, source: Source, *, rows: int, prompt_cache: int) -> None:
        self.name = source.name
        self.shared: ServedModel = self
        self.loaded = source.load()
        self.settings = dict(source.settings(self.loaded))
        self.strategy: str | None = self.settings.pop("strategy", None)
        usable = prompt_cache != 0 and not uncachable(self.loaded)
        self.prompt_cache = PromptCache(self.loaded, prompt_cache) if usable else None
        self._rows = rows
        self.renew_engine()
        self.weight_bytes = sum(array.nbytes for _, array in tree_flatten(self.loaded.model.parameters()))
        # Read by other threads, which must not make caches.
        self.by_column = self.prompt_cache is None or self.prompt_cache.by_column()
        self.is_chat = has_chat_template(self.loaded)
        tokenizer = self.loaded.tokenizer if self.is_chat and self.prompt_cache is not None else None
        self.conversations = Conversations(tokenizer) if tokenizer is not None else None

    def renew_engine(self) -> None:
        """Make an engine in which nothing runs."""
        # A share of the time would differ between the ranks of a divided model.
        share = PREFILL_SHARE if self.loaded.division is None else None
        self.engine = Engine(
            self.loaded, rows=self._rows, prompt_cache=self.prompt_cache, prefill_share=share
        )

    def cache_bytes(self, tokens: int, policy: CachePolicy) -> int:
        """The bytes that the caches of one sequence of so many tokens hold, by the recipe."""
        dtype = runtime.compute_dtype()
        return policy_bytes(self.loaded.recipe, tokens, policy) * (dtype.size if dtype else 2) // 2


class ServedAdapter(ServedModel):
    """A model in memory as its requests see it that ask for one of its adapters: `shared` is the model."""

    def __init__(self, shared: ServedModel, source: Source) -> None:
        self.shared, self.name = shared, source.name
        self.settings = {**shared.settings, "adapter": source.adapter}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shared, name)


Ready = Callable[[ServedModel | Exception], None]


class ModelTable:
    """The models by name, and who uses each.

    At most `most` are loaded at once. A model that is used stays loaded. Who asks for one while another waits to be loaded
    waits, too, so that each gets its turn.
    """

    def __init__(self, sources: Sequence[Source], most: int = 1) -> None:
        self.sources = {source.name: source for source in sources}
        self.most = most
        self.served: dict[str, ServedModel] = {}
        self._users: dict[str, int] = {}
        self._used: dict[str, float] = {}
        self._keep_alive: dict[str, float] = {}  # seconds, of the models of which a request says it
        self._waiting: deque[tuple[str, Ready]] = deque()
        self._dropped: list[weakref.ref[Any]] = []
        self._lock = threading.Lock()

    def acquire(self, name: str) -> ServedModel | None:
        """The model, which then stays loaded until `release`; None where it must be waited for (`wait`)."""
        with self._lock:
            if self._waiting or name not in self.served:
                return None
            return self._acquire(name)

    def wait(self, name: str, ready: Ready) -> None:
        """Have `ready` called, by the worker, with the model, which then stays loaded until `release`."""
        with self._lock:
            self._waiting.append((name, ready))

    def forget(self, ready: Ready) -> None:
        """Remove what was given to `wait` from the queue."""
        with self._lock:
            self._waiting = deque(waiting for waiting in self._waiting if waiting[1] is not ready)

    def fail(self, error: Exception) -> None:
        """Tell all who wait that no model comes."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        for _, ready in waiting:
            ready(error)

    def release(self, name: str) -> None:
        """Say that a user of the model is done with it."""
        with self._lock:
            self._users[name] -= 1
            self._used[name] = time.monotonic()

    def keep(self, model: ServedModel, seconds: float | None) -> None:
        """Have a model dropped when nobody has used it for so long, never where that is negative; None: as the server says.

        A model that is divided among ranks stays loaded.
        """
        with self._lock:
            if seconds is None or model.loaded.division is not None:
                self._keep_alive.pop(model.name, None)
            else:
                self._keep_alive[model.name] = seconds

    def seconds_left(self, name: str, default: float | None) -> float | None:
        """In how many seconds a model is dropped if nobody uses it; None: never. `default` is what the server says."""
        limit = self._keep_alive.get(name, default)
        if limit is None or limit < 0:
            return None
        now = time.monotonic()
        return self._used.get(name, now) + limit - now

    def _acquire(self, name: str) -> ServedModel:
        self._users[name] = self._users.get(name, 0) + 1
        return self.served[name]

    def next_wanted(self) -> tuple[str, Ready] | None:
        """Who waits longest, if the model can be given or loaded now; an unused one makes room. For the worker."""
        with self._lock:
            if not self._waiting:
                return None
            name = self._waiting[0][0]
            if name not in self.served and len(self.served) >= self.most and not self._drop_oldest():
                return None
            return self._waiting.popleft()

    def drop_oldest(self) -> bool:
        """Drop the unused model whose last use is longest ago; returns whether there was one. For the worker."""
        with self._lock:
            return self._drop_oldest()

    def _drop_oldest(self) -> bool:
        unused = [name for name in self.served if not self._users.get(name)]
        if unused:
            self._drop(min(unused, key=lambda name: self._used.get(name, 0.0)))
        return bool(unused)

    def give(self, name: str) -> ServedModel:
        """A loaded model to who waited for it. For the worker."""
        with self._lock:
            return self._acquire(name)

    def drop_unused(self, default: float | None) -> float | None:
        """Free the models that nobody has used for the seconds of `keep`, by `default` so many (None: they stay).

        Returns the seconds until the next is due, None without one.
        """
        with self._lock:
            unused = [] if self._waiting else [name for name in self.served if not self._users.get(name)]
            left = {name: self.seconds_left(name, default) for name in unused}
            due = {name: rest for name, rest in left.items() if rest is not None}
            over = [name for name, rest in due.items() if rest <= 0]
            for name in over:
                self._drop(name)
        if over:
            self.free_memory()
        return min((rest for rest in due.values() if rest > 0), default=None)

    def _drop(self, name: str) -> None:
        self._dropped.append(weakref.ref(self.served.pop(name).loaded.model))

    def free_memory(self) -> None:
        """Give back the memory of models that were dropped. Requests that have just ended may hold one a moment longer."""
        end, pause = time.monotonic() + HELD_SECONDS, 0.001
        while any(model() is not None for model in self._dropped) and time.monotonic() < end:
            time.sleep(pause)
            gc.collect()  # slow where the process has many objects
            pause = min(2 * pause, 0.1)
        self._dropped.clear()
        runtime.release_memory()
