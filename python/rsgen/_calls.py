"""Calls that run on a thread of their own: futures of `Generator.submit`, and what event loops await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


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


async def awaited(generator: Any, method: str, arguments: tuple[Any, ...], keywords: Any) -> Any:
    """The result of a call. Cancelling the task ends the work."""
    call = Call(generator, method, arguments, keywords)
    try:
        return await asyncio.wrap_future(call)
    except asyncio.CancelledError:
        call.cancel()
        raise
    finally:
        del call
