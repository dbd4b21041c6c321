"""rsgen in Ray: actors for Ray Data's `map_batches`, and a Ray Serve deployment."""

from __future__ import annotations

import os
import sys
from typing import Any

import rsgen

from ._rows import RowGenerator, open_generator, require

__all__ = ["RsgenPredictor", "deployment"]


class RsgenPredictor(RowGenerator):
    """An actor for Ray Data: `dataset.map_batches(RsgenPredictor, fn_constructor_kwargs={…}, num_cpus=2, concurrency=4)`.

    It opens the model when the actor starts, with as many threads as the actor has CPUs. The arguments are those of
    `RowGenerator`.

    Raises:
        ConfigError: The actor has no CPU of its own, so that any number of actors could share one.
    """

    def __init__(self, model: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__(model, **options)
        self.generator()

    def num_threads(self) -> int | None:
        """Returns the CPUs of the actor. None outside of Ray."""
        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized() or ray.get_runtime_context().get_actor_id() is None:
            return None
        cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 0)
        if cpus < 1:
            raise rsgen.ConfigError(
                f"the actor has {cpus} CPUs, and Ray limits no threads; give map_batches num_cpus=1 or more"
            )
        return int(cpus)


class _Deployment:
    """A replica: it answers with what the fields of a request give."""

    def __init__(self, model: str | None, options: dict[str, Any]) -> None:
        self.gen = open_generator(model, options)

    async def __call__(self, request: Any) -> Any:
        responses = require("starlette.responses", "ray")
        try:
            fields = await request.json()
            if not isinstance(fields, dict):
                raise rsgen.InputError("the body must be a JSON object with `prompt` and generation fields")
            prompt, stream = fields.pop("prompt", None), fields.pop("stream", False)
            tokens = self.gen.astream(prompt, rsgen.GenerationConfig(**fields))
            if stream:
                return responses.StreamingResponse(
                    (token.text async for token in tokens), media_type="text/plain"
                )
            async with tokens:
                async for _ in tokens:
                    pass
        except (TypeError, ValueError, rsgen.CapacityError) as error:
            status = 503 if isinstance(error, rsgen.CapacityError) else 400
            return responses.JSONResponse({"error": str(error)}, status)
        out: Any = tokens.output
        return {"text": out.text, "finish_reason": out.finish_reasons[0], "seed": out.seed}


def deployment(
    model: str | os.PathLike[str] | None = None,
    *,
    num_cpus: int,
    model_kwargs: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Returns an application for `serve.run`.

    It answers POST requests with a JSON body of `prompt` and generation fields by `text`, `finish_reason` and `seed`; with
    `"stream": true` by the text as it comes. A bad request gets status 400, one too many 503.

    Args:
        model (str | os.PathLike[str] | None): As of `rsgen.Generator`. A folder must be there on every machine.
        num_cpus (int): The CPUs of a replica, and its threads.
        model_kwargs (dict[str, Any] | None): Further arguments of `rsgen.Generator`.
        **options: Options of `serve.deployment`. By default 16 `max_ongoing_requests` and 64 `max_queued_requests`.

    Returns:
        ray.serve.Application: The application.
    """
    options = {"max_ongoing_requests": 16, "max_queued_requests": 64, **options}
    serve = require("ray.serve", "ray")
    served = serve.deployment(name="rsgen", ray_actor_options={"num_cpus": num_cpus}, **options)(_Deployment)
    path = None if model is None else os.fspath(model)
    return served.bind(path, {"num_threads": num_cpus, **(model_kwargs or {})})
