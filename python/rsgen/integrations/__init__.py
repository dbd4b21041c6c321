"""rsgen inside Ray, Spark, Dask and lm-eval: each has a module, which imports the engine when it is used.

Every row has a seed of its own, which follows from the job's seed and the row's id. So results do not depend on partitions,
batch sizes, retries or machines. See docs/integrations.md. `lm_eval` is the model `rsgen` of lm-eval: see docs/clients.md.
"""

from ._rows import RowGenerator as RowGenerator
from ._rows import row_seed as row_seed

__all__ = ["RowGenerator", "row_seed"]
_ENGINES = ("dask", "lm_eval", "ray", "spark")


def __getattr__(name: str) -> object:
    """Imports the module of an engine that is used for the first time."""
    if name not in _ENGINES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__dir__())}")
    import importlib

    return importlib.import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return [*__all__, *_ENGINES]
