"""Refuses a second interpreter of the process, where it is imported before the extension.

The extension keeps classes and threads for the whole process, and another interpreter would wait for them for ever.
"""

import importlib

for _name in ("_interpreters", "_xxsubinterpreters"):  # since Python 3.13, and before
    try:
        _interpreters = importlib.import_module(_name)
    except ImportError:
        continue
    if _interpreters.get_current() != _interpreters.get_main():
        raise ImportError("rsgen runs in the main interpreter alone; use threads or processes of it")
    break
