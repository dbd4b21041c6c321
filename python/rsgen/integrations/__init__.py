"""rsgen inside Ray, Spark and Dask: each engine has a module, which imports the engine when it is used.

Every row has a seed of its own, which follows from the job's seed and the row's id. So results do not depend on partitions,
batch sizes, retries or machines. See docs/integrations.md.
"""

from ._rows import RowGenerator as RowGenerator
from ._rows import row_seed as row_seed

__all__ = ["RowGenerator", "row_seed"]


def __dir__() -> list[str]:
    """The public names, for completion."""
    return [*__all__, "dask", "ray", "spark"]
