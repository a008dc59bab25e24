"""A page as a browser reads it, and names that would harm it."""

from html.parser import HTMLParser

VOID = {"meta", "line", "rect"}
HOSTILE = "<script>alert(1)</script> & | `x` [y](z) \x1b[31m"


class Page(HTMLParser):
    """Tags, attributes and text of a page; complains about tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data

    @property
    def pictures(self) -> list[str | None]:
        """What the pictures are called."""
        return [found["aria-label"] for found in self.of("svg")]

    def of(self, tag: str, of_class: str | None = None) -> list[dict[str, str | None]]:
        """Attributes of every such tag."""
        return [
            attributes
            for name, attributes in self.tags
            if name == tag and of_class in (None, attributes.get("class"))
        ]
