"""Charts as SVG text, readable on light and on dark pages: lines over logarithmic axes, and groups of bars.

SPDX-License-Identifier: Apache-2.0
"""

import math
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 200, 48, 56
# Told apart by colour-blind readers too; none is near white or black.
_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#b8860b", "#7f7f7f", "#56b4e9")
_STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.grid { stroke: #8c959f; stroke-opacity: .35; } .axis { stroke: #57606a; }
.title { font-size: 16px; font-weight: 600; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .axis { stroke: #9198a1; } }
</style>"""


def _text(x, y, words, anchor="start", kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(str(words))}</text>'


def _line(x1, y1, x2, y2, kind):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def number(value):
    """A number as a person writes it on an axis: 0.5, 20, 3000."""
    return f"{value:g}" if value < 1e6 else f"{value / 1e6:g}M"


def _ticks(low, high):
    """1, 2, 5, 10, 20 … within [low, high]; at least the ends' neighbours."""
    found = []
    for power in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1):
        found += [step * 10.0**power for step in (1, 2, 5) if low <= step * 10.0**power <= high]
    return found or [low, high]


def _scale(low, high, from_pixel, to_pixel):
    span = math.log(high / low) or 1

    def place(value):
        return from_pixel + math.log(value / low) / span * (to_pixel - from_pixel)
    return place


def _page(title, x_label, y_label, parts, names):
    legend = []
    for i, name in enumerate(names):
        y = _TOP + 14 + 22 * i
        legend.append(f'<rect x="{_WIDTH - _RIGHT + 16}" y="{y - 10}" width="12" height="12" fill="{_COLOURS[i % len(_COLOURS)]}"/>')
        legend.append(_text(_WIDTH - _RIGHT + 34, y, name))
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    labels = [
        _text(_LEFT, 26, title, kind="title"),
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 12, x_label, "middle"),
        f'<g transform="rotate(-90 18 {middle:.1f})">{_text(18, middle, y_label, "middle")}</g>',
        _line(_LEFT, _HEIGHT - _BOTTOM, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM, "axis"),
        _line(_LEFT, _TOP, _LEFT, _HEIGHT - _BOTTOM, "axis"),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
    return "\n".join([head, _STYLE, *labels, *parts, *legend, "</svg>"]) + "\n"


def lines(title, x_label, y_label, series):
    """`series`: {name: [(x, y)…]}, all above zero; both axes are logarithmic."""
    points = [point for line in series.values() for point in line]
    if not points or min(min(x, y) for x, y in points) <= 0:
        raise ValueError("a logarithmic plot needs points, all above zero")
    xs, ys = sorted({x for x, _ in points}), [y for _, y in points]
    y_low, y_high = min(ys) * 0.8, max(ys) * 1.25
    place_x = _scale(xs[0], xs[-1] if len(xs) > 1 else xs[0] * 2, _LEFT + 14, _WIDTH - _RIGHT - 14)
    place_y = _scale(y_low, y_high, _HEIGHT - _BOTTOM, _TOP)
    parts = []
    for tick in _ticks(y_low, y_high):
        parts.append(_line(_LEFT, place_y(tick), _WIDTH - _RIGHT, place_y(tick), "grid"))
        parts.append(_text(_LEFT - 8, place_y(tick) + 4, number(tick), "end"))
    last = -math.inf
    for x in xs:
        if place_x(x) - last >= 30:  # labels do not run into each other
            parts.append(_text(place_x(x), _HEIGHT - _BOTTOM + 18, number(x), "middle"))
            last = place_x(x)
    for i, line in enumerate(series.values()):
        colour = _COLOURS[i % len(_COLOURS)]
        path = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in sorted(line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.2"/>')
        parts += [f'<circle cx="{place_x(x):.1f}" cy="{place_y(y):.1f}" r="3.2" fill="{colour}"/>' for x, y in line]
    return _page(title, x_label, y_label, parts, list(series))


def bars(title, y_label, groups, names):
    """`groups`: {group: [a value or None for each of `names`]}; the axis is linear and begins at zero."""
    highest = max((value for values in groups.values() for value in values if value is not None), default=0)
    if highest <= 0:
        raise ValueError("bars need a value above zero")
    width = (_WIDTH - _RIGHT - _LEFT) / len(groups)
    bar = width * 0.8 / len(names)
    floor = _HEIGHT - _BOTTOM
    step = next(s for p in range(-6, 12) for s in (10.0**p, 2 * 10.0**p, 5 * 10.0**p) if highest / s <= 6)
    parts = []
    for i in range(int(highest / step) + 1):
        y = floor - i * step / (highest * 1.1) * (floor - _TOP)
        parts += [_line(_LEFT, y, _WIDTH - _RIGHT, y, "grid"), _text(_LEFT - 8, y + 4, number(i * step), "end")]
    for g, (group, values) in enumerate(groups.items()):
        left = _LEFT + g * width + width * 0.1
        parts.append(_text(left + width * 0.4, floor + 18, group, "middle"))
        for i, value in enumerate(values):
            if value is None:
                continue
            height = value / (highest * 1.1) * (floor - _TOP)
            x = left + i * bar
            parts.append(f'<rect x="{x:.1f}" y="{floor - height:.1f}" width="{bar * 0.92:.1f}" height="{height:.1f}" '
                         f'fill="{_COLOURS[i % len(_COLOURS)]}"/>')
            parts.append(_text(x + bar * 0.46, floor - height - 4, f"{value:.3g}", "middle"))
    return _page(title, "", y_label, parts, names)
