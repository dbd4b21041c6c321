"""Refuses a second interpreter of the process, at the import of the package and so before the extension.

The extension keeps classes and threads for the whole process, and another interpreter would wait for them for ever.
"""

try:
    # Since Python 3.13.
    import _interpreters  # pyright: ignore[reportMissingImports]
except ImportError:
    try:
        import _xxsubinterpreters as _interpreters
    except ImportError:
        _interpreters = None

if _interpreters is not None and _interpreters.get_current() != _interpreters.get_main():
    raise ImportError("rsgen runs in the main interpreter alone; use threads or processes of it")
