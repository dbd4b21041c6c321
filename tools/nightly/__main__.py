"""A night of attack: `make nightly HOURS=8`, or `python tools/nightly --hours 8`.

It plans the hours over the parts of `parts.py`, runs one after the other, goes on after a failure, and says at the end, and
after Ctrl-C, what ran: target/nightly/report.md, with a log of each part beside it. What cannot run on this machine is in the
report with the reason. Builds do not count as hours.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from outcomes import Outcome, findings, page, repeating
from parts import ROOT, TARGET, Part, all_parts, executions

FOLDER = TARGET / "nightly"
#: A part may take so many times its seconds, and so many more, before it is ended.
PATIENCE_TIMES, PATIENCE_SECONDS = 2, 900


def planned(parts: list[Part], seconds: float) -> tuple[list[tuple[Part, int]], list[Outcome]]:
    """The seconds of each part that can run, and what cannot."""
    runs, left_out = [], []
    for part in parts:
        why = part.missing()
        if why is None and part.takes > part.share * seconds:
            why = f"it takes {part.takes / 60:.0f} minutes, of which this run has {part.share * seconds / 60:.1f}"
        if why is None:
            runs.append(part)
        else:
            left_out.append(Outcome(part.name, "", 0, status=f"not run: {why}"))
    fixed = sum(part.takes for part in runs)
    shares = sum(part.share for part in runs if not part.takes)
    return [(p, p.takes or max(1, int((seconds - fixed) * p.share / shares))) for p in runs], left_out


def shell(command: str, log: Path, timeout: float | None = None) -> tuple[int | None, str]:
    """Runs a command in the repository. Its exit code, or `None` where it was ended, and what it wrote."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            shell=True,
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(timeout)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as ended:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(ended, KeyboardInterrupt):
                raise
            code = None
    return code, log.read_text(errors="replace")


def build(runs: list[tuple[Part, int]], under: str) -> list[Outcome]:
    """Builds what the parts need. What does not build is a finding."""
    failed = []
    for number, command in enumerate(dict.fromkeys(part.builds for part, _ in runs if part.builds)):
        print(f"building: {command}", flush=True)
        code, log = shell(f"{under} {command}".strip(), FOLDER / f"build-{number}.log")
        if code != 0:
            failed.append(Outcome("build", command, 0, status="failed", findings=findings(log, code)))
    return failed


def run(part: Part, seconds: int, seed: int, under: str) -> Outcome:
    command = part.command(seed, seconds)
    print(f"{part.name}: {seconds} s, seed {seed}: {command}", flush=True)
    started, wrapped = time.monotonic(), command
    if under:
        wrapped = f"{under} sh -c {shlex.quote(command)}"
    code, log = shell(
        wrapped, FOLDER / f"{part.name.replace(' ', '-')}.log", PATIENCE_TIMES * seconds + PATIENCE_SECONDS
    )
    outcome = Outcome(part.name, command, seed, time.monotonic() - started, executions(part, log), part.unit)
    outcome.findings = findings(log, code)
    if outcome.findings:
        outcome.status, outcome.command = "**found something**", repeating(outcome, log)
    elif not outcome.executions:
        outcome.status, outcome.findings = "**did nothing**", log.splitlines()[-6:] or ["an empty log"]
    print(f"  {outcome.executions} {outcome.unit}, {outcome.status}", flush=True)
    return outcome


def output_of(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def main(argv: list[str] | None = None) -> int:
    """Returns the number of parts that found something."""
    parser = argparse.ArgumentParser(prog="nightly", description=__doc__)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=0, help="0 draws one")
    parser.add_argument("--parity-python", default="python3", help="a Python with torch and transformers")
    parser.add_argument("--only", default="", help="a word that the names of the parts have in them")
    parser.add_argument("--under", default="", help="what each command runs behind, such as nice")
    args = parser.parse_args(argv)
    seed = args.seed or random.SystemRandom().randrange(1, 1 << 31)
    FOLDER.mkdir(parents=True, exist_ok=True)
    parts = [part for part in all_parts(args.parity_python) if args.only in part.name]
    runs, outcomes = planned(parts, args.hours * 3600)
    began = datetime.now(timezone.utc)
    facts = [
        f"began {began:%Y-%m-%d %H:%M} UTC, {args.hours} hours planned, seed {seed}",
        f"commit {output_of('git', 'describe', '--always', '--dirty')}, {output_of('rustc', '--version')}",
        f"{os.cpu_count()} cores, {os.uname().sysname} {os.uname().machine}",
    ]
    try:
        outcomes += build(runs, args.under)
        for number, (part, seconds) in enumerate(runs):
            outcomes.append(run(part, seconds, (seed + number) % (1 << 31) or 1, args.under))
    except KeyboardInterrupt:
        facts.append("ended by Ctrl-C")
    text = page(f"A night of attack, {began:%Y-%m-%d}", facts, outcomes)
    for name in ("report.md", f"report-{began:%Y-%m-%d-%H%M}.md"):
        (FOLDER / name).write_text(text)
    print(text)
    return sum(bool(one.findings) for one in outcomes)


if __name__ == "__main__":
    sys.exit(bool(main()))
