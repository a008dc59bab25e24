"""The application: what it says of itself, and of what goes wrong in any command.

Exit codes: 0 a plan, 2 bad input or an output that cannot be written, 3 proved that
there is none, 4 none found in time, 1 a bug of ours. With `--json` stdout holds one
document, an error too; everything else goes to stderr. What is heavy is imported by the
command that needs it.
"""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import registry
from ..errors import HetoptError
from .options import flag
from .output import answer_error, begin, fail, stopped, wants_json

# Of what is wrong with the words of a command line: unknown options, absent arguments.
_UsageError: Any = typer.BadParameter.__base__


class _Answering(TyperGroup):
    """Turns errors into one message and an exit code, without a traceback."""

    as_json = False

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        self.as_json = wants_json(args)
        begin()
        try:
            return super().make_context(info_name, args, parent, **extra)
        except _UsageError as error:
            self._answer(error)
            raise
        except OSError as error:  # of `--help` and `--version`, which print here
            fail(_of_the_system(error), as_json=self.as_json)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            self._answer(error)
            raise
        except HetoptError as error:
            fail(error, as_json=self.as_json)
        except KeyboardInterrupt:
            stopped("interrupted before anything was found", as_json=self.as_json)
        except OSError as error:
            fail(_of_the_system(error), as_json=self.as_json)

    def _answer(self, error: Any) -> None:
        """The document of a usage error, whose words the library prints."""
        name = getattr(error, "option_name", None)
        parameter = getattr(error, "param", None)
        if name is None and parameter is not None:
            name = max(parameter.opts, key=len)
        message, code = error.format_message(), error.exit_code
        answer_error("usage_error", message, code, None, name, as_json=self.as_json)


def _of_the_system(error: OSError) -> HetoptError:
    """Return what the system refused, such as room on a disk, and of which file."""
    place = error.filename if isinstance(error.filename, str) else None
    reason = error.strerror or str(error)
    words = (
        f"the system refused: {reason}; free some space, or correct the path or its "
        "permissions"
    )
    found = HetoptError.of(place, words)
    found.kind = "system_error"
    return found


app = typer.Typer(
    cls=_Answering,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 a plan, 2 bad input or an output that cannot be written, "
    "3 proved that there is no plan, 4 none found in time, 1 a bug of ours. With "
    "`--json` an error is a document, too.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"hetopt {registry.version()}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, flag("Show the version.", "--version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Plans the training of large language models on mixed GPUs.

    Every plan is timed and weighed by one judge, and comes with a proved bound: how
    much faster any plan could be at most.

    Start with your own: `hetopt assemble config.json hosts.txt --global-batch 256
    --sequence-length 4096 --out mine.yaml`, then `hetopt plan mine.yaml`.
    """
