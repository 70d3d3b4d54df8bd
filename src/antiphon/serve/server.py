"""The process that serves: uvicorn with one application, stopped by SIGTERM or Ctrl-C."""

from collections.abc import Mapping

import uvicorn

from antiphon.api import Model
from antiphon.serve.app import create_app
from antiphon.serve.service_settings import ServiceSettings


def serve(models: Mapping[str, Model], settings: ServiceSettings) -> None:
    """Serves until the process is stopped."""
    config = uvicorn.Config(
        create_app(models, settings),
        host=settings.access.host,
        port=settings.access.port,
        log_level="warning",
        access_log=False,
        server_header=False,
    )
    uvicorn.Server(config).run()
