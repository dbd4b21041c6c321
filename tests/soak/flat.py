"""The rule by which the soak says that a server's memory is flat."""

from __future__ import annotations

from itertools import combinations
from statistics import median

from soak.server import Rest

#: Rests before this part of a life, and before these seconds of it, count as warming up: caches fill, and the allocator
#: finds its size.
WARM, WARM_SECONDS = 0.25, 120.0
#: The most that the resident memory may grow from there to the end, by the line through the rests.
GROWTH_BYTES = 8 << 20
#: The files and threads that a rest may have beyond the first one that counts: of connections that are about to close.
MORE_FILES, MORE_THREADS = 5, 16
#: With fewer rests than this a line says nothing.
FEWEST = 8


def counted(rests: list[Rest]) -> list[Rest]:
    """The rests after the first quarter of a life, and after two minutes of it."""
    return [rest for rest in rests if rest.seconds >= max(WARM_SECONDS, WARM * rests[-1].seconds)]


def growth(rests: list[Rest]) -> float:
    """The bytes by which the resident memory grows over these rests: the median slope of all pairs (Theil and Sen), which
    a few rests with more than usual do not change, times the time that they span."""
    slopes = [
        (b.resident - a.resident) / (b.seconds - a.seconds)
        for a, b in combinations(rests, 2)
        if b.seconds > a.seconds
    ]
    return median(slopes) * (rests[-1].seconds - rests[0].seconds) if slopes else 0.0


def faults(rests: list[Rest]) -> list[str]:
    """What has grown."""
    warm = counted(rests)
    if len(warm) < FEWEST:
        return []
    first, last, found = warm[0], warm[-1], []
    if (more := growth(warm)) > GROWTH_BYTES:
        found.append(f"the resident memory grew by {more / (1 << 20):.1f} MiB after it was warm")
    if last.files > first.files + MORE_FILES:
        found.append(f"{last.files} files are open, {first.files} were")
    if last.threads > first.threads + MORE_THREADS:
        found.append(f"{last.threads} threads run, {first.threads} did")
    return found


def told_of(rests: list[Rest]) -> str:
    """A line about the rests."""
    warm = counted(rests)
    if len(warm) < FEWEST:
        return f"{len(rests)} rests, too few to say whether memory is flat"
    span, mib = (warm[-1].seconds - warm[0].seconds) / 3600, 1 << 20
    some = " ".join(f"{rest.resident / mib:.0f}" for rest in rests[:: -(-len(rests) // 12)])
    return (
        f"{len(rests)} rests ({some} MiB), {warm[-1].resident / mib:.0f} MiB resident, {growth(warm) / mib:+.2f} MiB over the last "
        f"{span:.2f} h, {warm[-1].files} files, {warm[-1].threads} threads"
    )
