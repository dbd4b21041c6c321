"""Calls that run on a thread of their own: futures of `Generator.submit`, and what event loops await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from weakref import WeakKeyDictionary


class Call(Future[Any]):
    """A future whose `cancel()` ends the work although it runs.

    To the base class it waits until the work has ended, because what runs cannot be cancelled there.
    """

    def __init__(self, generator: Any, method: str, arguments: tuple[Any, ...], keywords: Any) -> None:
        super().__init__()
        self._call: Callable[[], Any] | None = lambda: getattr(generator, method)(
            *arguments, **keywords or {}
        )
        self._is_begun = False
        self._end = generator._start(self._run)

    def cancel(self) -> bool:
        """Ends the work, unless it has ended."""
        is_cancelled = super().cancel()
        if is_cancelled:
            self._end()
        return is_cancelled

    def running(self) -> bool:
        """Whether the work has begun and not ended."""
        return self._is_begun and not self.done()

    def _run(self) -> None:
        call, self._call, self._is_begun = self._call, None, True
        result, error = None, None
        try:
            if call and not self.cancelled():
                result = call()
        except BaseException as raised:
            error = raised
        if self.set_running_or_notify_cancel():
            if error is None:
                self.set_result(result)
            else:
                self.set_exception(error)
        # An exception refers to this frame, and it to the exception.
        del self, error


class _Waking:
    """Wakes an event loop ten times a second while calls are awaited in it.

    The kernel of a notebook cancels a cell in a signal handler, by `call_soon` of its loop. A loop that sleeps does not
    see that before something else wakes it, which would be the end of the work.
    """

    SECONDS = 0.1

    def __init__(self) -> None:
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._waiting += 1
        if self._timer is None:
            self._wake(asyncio.get_running_loop())

    def __exit__(self, *_: object) -> None:
        self._waiting -= 1
        if self._timer and not self._waiting:
            self._timer.cancel()
            self._timer = None

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self.SECONDS, self._wake, loop)


#: Those of the loops that have awaited a call.
_waking: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waking] = WeakKeyDictionary()


async def awaited(generator: Any, method: str, arguments: tuple[Any, ...], keywords: Any) -> Any:
    """The result of a call. Cancelling the task ends the work."""
    call = Call(generator, method, arguments, keywords)
    try:
        with _waking.setdefault(asyncio.get_running_loop(), _Waking()):
            return await asyncio.wrap_future(call)
    except asyncio.CancelledError:
        call.cancel()
        raise
    finally:
        del call
