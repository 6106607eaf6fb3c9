"""The report of gpu_check: one JSON document, its rules, and its plot.

SPDX-License-Identifier: Apache-2.0
"""

import math
from xml.sax.saxutils import escape

# cut: the whole ran out of time, not the step.
STATES = ("passed", "failed", "timed out", "cut", "skipped")
# Field -> type, of the whole document, of a step and of a measured pass. `?` behind a name: may be absent.
_DOCUMENT = {"began": str, "seconds": float, "commit": str, "device": str, "driver": str, "cuda": str, "dry_run": bool, "steps": list, "passes": list,
             "copy_bytes_per_s?": float, "product_flops_per_s?": float, "http": list, "verdict": str}
_STEP = {"name": str, "state": str, "seconds": float, "limit_s": float, "command": str, "log": str, "reason": str}
_PASS = {"model": str, "dtype": str, "tokens": int, "rounds": int, "recorded_ms": float, "recorded_p99_ms": float, "single_ms": float,
         "single_p99_ms": float, "floor_ms?": float, "share_of_floor?": float, "aim_ms?": float}
_HTTP = {"tokens": int, "requests": int, "p50_ms": float, "p99_ms": float, "pass_p50_ms": float}


def _faults_of(what, value, fields):
    if not isinstance(value, dict):
        return [f"{what} is no object"]
    found = []
    for name, kind in fields.items():
        key = name.rstrip("?")
        if key not in value:
            found += [] if name.endswith("?") else [f"{what} has no {key}"]
        elif kind is float:
            number = isinstance(value[key], (int, float)) and not isinstance(value[key], bool)
            if not number or not math.isfinite(value[key]) or value[key] < 0:
                found.append(f"{what}: {key} is {value[key]!r}, no number of zero or more")
        elif not isinstance(value[key], kind) or (kind is int and isinstance(value[key], bool)):
            found.append(f"{what}: {key} is {value[key]!r}, not of type {kind.__name__}")
    return found + [f"{what}: nobody knows {key}" for key in value if key not in fields and f"{key}?" not in fields]


def faults(document):
    """What is wrong with a report; nothing if it is right."""
    found = _faults_of("the report", document, _DOCUMENT)
    if found:
        return found
    for kind, fields in (("steps", _STEP), ("passes", _PASS), ("http", _HTTP)):
        for i, entry in enumerate(document[kind]):
            found += _faults_of(f"{kind}[{i}]", entry, fields)
    if found:
        return found
    found = [f"step {step['name']}: no state {step['state']!r}" for step in document["steps"] if step["state"] not in STATES]
    if document["verdict"] != verdict(document["steps"]):
        found.append("the verdict does not follow from the steps")
    return found


def verdict(steps):
    """One for the whole: what failed comes before what was not done."""
    states = [step["state"] for step in steps]
    if any(state in ("failed", "timed out") for state in states):
        return "failed"
    return "incomplete" if "skipped" in states or "cut" in states or not states else "passed"


def plot(document):
    """Bars of the measured passes, with the roofline of this device as a line through each, and the aim as a dashed one."""
    width, height, left, bottom, top = 760, 380, 60, 70, 50
    passes = document["passes"]
    largest = max([max(row["single_ms"], row.get("aim_ms", 0)) for row in passes], default=1) * 1.1

    def y(value):
        return height - bottom - value / largest * (height - bottom - top)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
             "<style>text { font: 13px system-ui, sans-serif; fill: #24292f; } .axis { stroke: #57606a; }"
             " @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .axis { stroke: #9198a1; } }</style>",
             f'<text x="{left}" y="26" font-weight="600">One pass, ms, on {escape(document["device"])}: recorded, one by one; line: floor; dashed: aim</text>',
             f'<line x1="{left}" y1="{y(0):.1f}" x2="{width - 20}" y2="{y(0):.1f}" class="axis"/>']
    step = (width - left - 40) / max(len(passes), 1)
    for i, row in enumerate(passes):
        x = left + 20 + i * step
        bar = min(step * 0.35, 70)
        for k, (key, colour) in enumerate((("recorded_ms", "#0072b2"), ("single_ms", "#d55e00"))):
            parts.append(f'<rect x="{x + k * bar:.1f}" y="{y(row[key]):.1f}" width="{bar - 4:.1f}" height="{y(0) - y(row[key]):.1f}" fill="{colour}"/>')
            parts.append(f'<text x="{x + k * bar + bar / 2 - 2:.1f}" y="{y(row[key]) - 5:.1f}" text-anchor="middle">{row[key]:.2f}</text>')
        for key, dash in (("floor_ms", ""), ("aim_ms", ' stroke-dasharray="5 4"')):
            if key in row:
                parts.append(f'<line x1="{x - 6:.1f}" y1="{y(row[key]):.1f}" x2="{x + 2 * bar + 2:.1f}" y2="{y(row[key]):.1f}" class="axis" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{x + bar:.1f}" y="{height - bottom + 20}" text-anchor="middle">{escape(row["model"])}</text>')
        parts.append(f'<text x="{x + bar:.1f}" y="{height - bottom + 38}" text-anchor="middle">{row["tokens"]} tokens, {escape(row["dtype"])}</text>')
    if not passes:
        parts.append(f'<text x="{left + 20}" y="{height / 2}">nothing was measured</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
