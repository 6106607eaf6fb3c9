"""Progress on stderr: a bar on a terminal, otherwise one plain line for every tenth of the way.

SPDX-License-Identifier: Apache-2.0
"""

import sys
import time

_BAR_CELLS = 30
_REDRAW_SECONDS = 0.1  # ten redraws a second look smooth and cost nothing


def say(text: str) -> None:
    print(f"fetch_model: {text}", file=sys.stderr, flush=True)


def human(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


class Progress:
    """Counts towards `total` bytes; `start` of them were there before, and are left out of the speed."""

    def __init__(self, label: str, total: int, start: int = 0, stream=None):
        self._label = label
        self._total = max(total, 1)
        self._start = start
        self._stream = stream or sys.stderr
        self._bar = self._stream.isatty()
        self._began = time.monotonic()
        self._last_drawn = 0.0
        self._last_tenth = 10 * start // self._total

    def update(self, done: int) -> None:
        done = min(done, self._total)
        now = time.monotonic()
        if self._bar:
            if now - self._last_drawn < _REDRAW_SECONDS and done < self._total:
                return
            self._last_drawn = now
            filled = _BAR_CELLS * done // self._total
            bar = "#" * filled + "-" * (_BAR_CELLS - filled)
            self._write(f"\r{self._label} [{bar}] {self._figures(done, now)}   ")
        elif 10 * done // self._total > self._last_tenth:
            self._last_tenth = 10 * done // self._total
            self._write(f"fetch_model: {self._label}: {self._figures(done, now)}\n")

    def close(self) -> None:
        if self._bar and self._last_drawn:
            self._write("\n")

    def _figures(self, done: int, now: float) -> str:
        speed = (done - self._start) / max(now - self._began, 1e-3)
        return f"{100 * done // self._total} %, {human(done)} of {human(self._total)}, {human(speed)}/s"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
