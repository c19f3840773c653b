"""Draw the strips of a chart, one below the other, each as wide as the time axis.

Shapes are drawn in fixed coordinates and stretched: zooming makes a strip wider than its visible part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from verify.chaos.report.drawing.axis import Axis
from verify.chaos.report.drawing.markup import Markup, Part, element, together
from verify.chaos.report.facts import Level, Span

#: The coordinates of a drawing; the style sheet determines its size.
WIDE, HIGH = 10_000, 100


_ISR_WORDS = (("complete", "full"), ("smaller", "some"), ("one replica alone", "one"))


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of brokers in the order of their ids: eight, used in turn, that people who cannot see red or green
    can distinguish.
    """

    brokers: Sequence[int]

    def class_of(self, broker_id: int | None) -> str:
        if broker_id not in self.brokers:
            return "no-broker"
        return f"broker{self.brokers.index(broker_id) % 8}"

    def legend(self) -> Markup:
        """Return the legend of the brokers' colours and of the ISR's sizes."""
        chips = [element("span", f"broker {broker}", class_=f"chip {self.class_of(broker)}") for broker in self.brokers]
        heights = [element("span", word, class_=f"chip isr {kind}") for word, kind in _ISR_WORDS]
        return element("p", *chips, element("span", "ISR ", class_="facts"), *heights, class_="legend")


def lane(name: Part, *strips: Markup, kind: str = "") -> Markup:
    """Return a lane: a name with strips beside it. `kind` is an additional CSS class."""
    return element(
        "div",
        element("div", name, class_="name"),
        element("div", *strips, class_="strips"),
        class_=f"lane {kind}".rstrip(),
    )


def strip(*parts: Part, kind: str, beside: Part = None) -> Markup:
    """Return a strip that zooms with the chart; `beside` does not zoom. `kind` is an additional CSS class."""
    return element("div", element("div", *parts, class_="strip"), beside, class_=f"track {kind}")


def named(name: str, of: Markup, title: str | None = None) -> Markup:
    """Return a strip with a name of its own in its lane; `title` is the tooltip of the name."""
    return element("div", element("span", name, class_="what", title=title), of, class_="row")


def bands(spans: Iterable[Span], axis: Axis, palette: Palette, prefix: str) -> Markup:
    """Return spans as bars in their broker's colour, or a neutral one without a broker. `prefix` is the broker's role
    in the tooltip, for example "leader".
    """
    drawn = []
    for span in spans:
        owner = "" if span.broker is None else f"{prefix} {span.broker}, "
        label = span.what if span.broker is None else f"{span.broker} · {span.what}"
        when = f"{axis.seconds(span.begin)} – {axis.seconds(span.end)}"
        drawn.append(
            element(
                "div",
                element("span", label),
                class_=f"band {palette.class_of(span.broker)}",
                style=axis.place(span.begin, span.end),
                title=f"{owner}{span.what}, {when}",
            )
        )
    return together(*drawn)


def levels(drawn: Iterable[Level], axis: Axis, full: int) -> Markup:
    """Return bars with heights relative to `full`. Levels below `full` stand out, and those of at most 1 stand out
    more.
    """
    bars = []
    for level in drawn:
        kind = "full" if level.height >= full else "one" if level.height <= 1 else "some"
        bars.append(
            element(
                "div",
                class_=f"level {kind}",
                style=f"{axis.place(level.begin, level.end)};height:{round(100 * level.height / max(full, 1))}%",
                title=f"{level.what} {axis.seconds(level.begin)} – {axis.seconds(level.end)}",
            )
        )
    return together(*bars)


def drawing(*shapes: Markup) -> Markup:
    """Return shapes as a drawing in the coordinates of this module, stretched to the size of its strip."""
    return element("svg", *shapes, viewBox=f"0 0 {WIDE} {HIGH}", preserveAspectRatio="none", aria_hidden="true")


def area(heights: Sequence[float], kind: str) -> Markup:
    """Return heights from 0 to 1, each for an equal share of the axis, as a filled shape. There must be at least one.
    `kind` is the CSS class.
    """
    width = WIDE / len(heights)
    points = [f"M0 {HIGH}"]
    before = None
    for index, height in enumerate(heights):
        if height != before:
            points.append(f"H{round(index * width)}V{_y(height)}")
            before = height
    return element("path", class_=kind, d="".join(points) + f"H{WIDE}V{HIGH}Z")


def line(points: Sequence[tuple[float, float]], kind: str, *, steps: bool = False) -> Markup:
    """Return points (x, y), each from 0 to 1, as a line of CSS class `kind`. With `steps`, a height holds until the
    next point.
    """
    joined = []
    for index, (x, y) in enumerate(points):
        move = "M" if index == 0 else "L"
        if steps and index:
            joined.append(f"H{round(x * WIDE)}V{_y(y)}")
        else:
            joined.append(f"{move}{round(x * WIDE)} {_y(y)}")
    return element("path", class_=kind, d="".join(joined))


def broken_line(heights: Sequence[float | None], kind: str) -> Markup:
    """Return heights from 0 to 1, each for an equal share of the axis, as a line that is interrupted if a height is
    None.
    """
    width = WIDE / len(heights)
    joined = []
    pen_down = False
    for index, height in enumerate(heights):
        if height is None:
            pen_down = False
            continue
        x = round(index * width)
        # as wide as its part, so that a single value is visible too
        joined.append(f"{'L' if pen_down else 'M'}{x} {_y(height)}H{round(x + width)}")
        pen_down = True
    return element("path", class_=kind, d="".join(joined))


def key(entries: Mapping[str, str]) -> Markup:
    """Return the legend of a strip's lines. `entries` maps each line's name to its CSS class."""
    return together(*(element("span", name, class_=f"key {kind}") for name, kind in entries.items()))


def _y(height: float) -> int:
    return round(HIGH * (1 - min(max(height, 0.0), 1.0)))
