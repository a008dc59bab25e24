"""The templates of this folder, escaped, and strict about names."""

from jinja2 import Environment, PackageLoader, StrictUndefined, Template


def template(name: str) -> Template:
    """The template of that file name."""
    environment = Environment(
        loader=PackageLoader("hetopt.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
