"""A browser for a real server: it keeps cookies and sends the forms that it has been shown."""

import urllib.request
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin


@dataclass(kw_only=True)
class Form:
    """A form of a page: its fields as a browser would send them, and what can be chosen."""

    action: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    boxes: list[tuple[str, str]] = field(default_factory=list)
    options: list[tuple[str, str, str]] = field(default_factory=list)
    """Name of the select, value, and the text that a person reads."""

    def names(self) -> set[str]:
        chosen = {name for name, _, _ in self.options}
        return {name for name, _ in (*self.fields, *self.boxes)} | chosen


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._open = self._select = self._option = None

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "form":
            self._open = Form(action=given.get("action") or "")
            self.forms.append(self._open)
        elif self._open is None:
            return
        elif tag == "input" and given.get("name"):
            pair = (given["name"], given.get("value") or "")
            kind = given.get("type", "text")
            if kind == "checkbox":
                self._open.boxes.append(pair)
            elif kind not in ("submit", "button", "reset"):
                self._open.fields.append(pair)
        elif tag == "select":
            self._select = given.get("name")
        elif tag == "option":
            self._option = given.get("value") or ""

    def handle_data(self, data):
        if self._open is not None and self._option is not None and data.strip():
            self._open.options.append((self._select, self._option, data.strip()))
            self._option = None

    def handle_endtag(self, tag):
        if tag == "form":
            self._open = None
        elif tag == "option":
            self._option = None


class Browser:
    """Goes where it is sent, and remembers the page that it is shown."""

    def __init__(self) -> None:
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        self.url = ""
        self.page = ""

    def visit(self, url: str, data: bytes | None = None) -> None:
        request = urllib.request.Request(url, data=data, headers={"Referer": self.url or url})
        with self._opener.open(request, timeout=30) as response:
            self.url, self.page = response.url, response.read().decode()

    def form(self, *names: str) -> Form:
        """The one form of the page that has all of these fields."""
        parser = _Forms()
        parser.feed(self.page)
        (found,) = [form for form in parser.forms if form.names() >= set(names)]
        return found

    def send(self, form: Form, *more: tuple[str, str]) -> None:
        """Send the form; what is given replaces what its fields hold."""
        given = {name for name, _ in more}
        fields = [pair for pair in form.fields if pair[0] not in given]
        self.visit(urljoin(self.url, form.action), urlencode([*fields, *more]).encode())
