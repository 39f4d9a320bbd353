"""A page as a parser sees it."""

import json
from functools import cached_property
from html.parser import HTMLParser


class Parsed(HTMLParser):
    """Elements with their attributes, text outside scripts, and the content of every script."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.scripts, self.texts, self.comments = [], [], [], []
        self._inside = None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attributes), []))

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1][1].append(data)
        elif self._inside != "style":
            self.texts.append(data)

    def handle_comment(self, data):
        self.comments.append(data)

    def handle_decl(self, decl):
        self.comments.append(decl)

    def handle_pi(self, data):
        self.comments.append(data)

    @property
    def skeleton(self):
        """Every element with the names of its attributes, in order."""
        return [(tag, tuple(attributes)) for tag, attributes in self.elements]

    @property
    def code(self):
        """The scripts that run."""
        return ["".join(parts) for attributes, parts in self.scripts if not attributes.get("type")]

    @cached_property
    def data(self):
        """The one block of data, read strictly."""
        (block,) = ["".join(p) for a, p in self.scripts if a.get("type") == "application/json"]

        def refuse(constant):
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(block, parse_constant=refuse)

    @property
    def policy(self):
        (policy,) = [a["content"] for t, a in self.elements if t == "meta" and "http-equiv" in a]
        return policy

    def attribute(self, name):
        return [attributes[name] for _, attributes in self.elements if name in attributes]


def strings(value):
    """Yield every string of a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)


def colours(value, *, inside=False):
    """Yield every colour of a figure, as the page's script finds them."""
    if isinstance(value, str) and inside:
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from colours(item, inside=inside)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from colours(item, inside=inside or key.endswith(("color", "colorscale")))
