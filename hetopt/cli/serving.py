"""The command that serves the page of plans, registered by `hetopt.cli`."""

import webbrowser
from typing import Annotated

from . import output
from .options import AsJson, arg, flag, opt
from .quantities import duration


def serve(
    instance: Annotated[
        str | None,
        arg(
            "What to open: the path of an instance or a plan file, or a name from "
            "`hetopt list instances`."
        ),
    ] = None,
    port: Annotated[
        int, opt("N", "Port to listen on; 0: any free one.", min=0, max=65535)
    ] = 0,
    open_page: Annotated[bool, flag("Open the page in a browser.", "--open")] = False,
    time_limit: Annotated[
        float,
        duration(
            "S",
            "Time limit that the page proposes for a plan, in seconds.",
            least=0.1,
            most=86400,
        ),
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Serve a local page to look at clusters and plans, and to plan again.

    Only this machine can reach the page, whose address has a random token; it loads
    nothing from the network. Ctrl-C stops the server.

    Example: `hetopt serve hexiscale/setting-1-llama2-7b`
    """
    from .. import serving

    def ready(address: str) -> None:
        if as_json:
            output.print_json({"address": address})
        else:
            output.print_text(f"{address}\n")
            output.tell("Ctrl-C to stop")
        if open_page:
            webbrowser.open(address)

    serving.serve(instance, port=port, time_limit=time_limit, ready=ready)
