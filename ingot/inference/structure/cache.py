"""A cache bounded in bytes that drops the least recently used value first."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ByteBoundedCache(Generic[Value]):
    """At most `limit` bytes of values, by the sizes given to `put`. For any number of threads."""

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes = limit, 0
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> Value | None:
        """The value under `key`, if it is still there."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: Value, size: int) -> None:
        """Keep a value of `size` bytes; one that is larger than the whole cache is not kept."""
        with self._lock:
            self._drop(key)
            if size > self.limit:
                return
            self._values[key] = value, size
            self.bytes += size
            while self.bytes > self.limit:
                self._drop(next(iter(self._values)))

    def drop(self, key: Hashable) -> None:
        """Forget a key."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: Hashable) -> None:
        if key in self._values:
            self.bytes -= self._values.pop(key)[1]
