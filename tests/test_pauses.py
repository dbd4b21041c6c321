"""A process that is paused, by a closed lid, a frozen container or SIGSTOP, goes on as if nothing had happened: what limits
the work on texts, templates and grammars counts what is computed, and not the clock."""

import os
import signal
import subprocess
import sys
import time

import pytest

#: Longer than each limit of a text, a template or a grammar is in seconds.
PAUSE_SECONDS = 12

BEGIN = """
import sys
import rsgen
gen = rsgen.Generator(num_threads=1)
deep = {"type": "object", "properties": {f"field{n}": {"enum": [f"{n} {m}" for m in range(20)]} for n in range(60)}}
long = [{"role": "user", "content": "One day a little fox found a red boat. " * 50}] * 20
template = "{% for message in messages %}{% for word in message.content.split() %}{{ word }} {% endfor %}{% endfor %}"
"""
#: Calls that spend nearly all of their time in that work.
WORK = {
    "a text": "gen.tokenizer.encode('One day a little fox found a red boat. ' * 8_000)",
    "a schema": "gen.generate('One day', json_schema=deep | {'title': str(n)}, max_new_tokens=1)",
    "a template": "gen.apply_chat_template(long, chat_template=template)",
    "a repeated search": "gen.generate('One day', regex=f'[a-z]{{1,{n + 1000}}}', max_new_tokens=8)",
}


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="there is no signal that pauses a process")
def test_work_goes_on_after_a_pause():
    children = {}
    for name, work in WORK.items():
        program = f"{BEGIN}\nfor n in range(10**9):\n    {work}\n    print(n, flush=True)\n"
        children[name] = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    try:
        for child in children.values():
            assert child.stdout.readline() == "0\n", child.stderr.read()
        # Each is in the middle of a call, most likely.
        for child in children.values():
            os.kill(child.pid, signal.SIGSTOP)
        time.sleep(PAUSE_SECONDS)
        for child in children.values():
            os.kill(child.pid, signal.SIGCONT)
        for name, child in children.items():
            numbers = [child.stdout.readline() for _ in range(3)]
            assert numbers == ["1\n", "2\n", "3\n"], (name, numbers, child.poll())
    finally:
        for child in children.values():
            child.kill()
            child.communicate()
