"""Result files: one JSON document a bench, in docs/bench/. A bench may be run in parts (some models, some lengths); each part
replaces the rows that it measured anew and leaves the others.

SPDX-License-Identifier: Apache-2.0
"""

import json
import os

from common import machine

FOLDER = machine.ROOT / "docs/bench"


def merged(old_rows, new_rows, keys):
    """Rows of both, by `keys`; a new row takes the place of the old one with the same keys, and the others keep theirs."""
    def key(row):
        return tuple(row.get(name) for name in keys)

    new_by_key = {key(row): row for row in new_rows}
    rows = [new_by_key.pop(key(row), row) for row in old_rows]
    return rows + list(new_by_key.values())


class Results:
    """`keys`: the fields that tell rows apart, for example model, length."""

    def __init__(self, name, keys, folder=FOLDER):
        self.path = folder / f"{name}.json"
        self._keys = keys
        self.rows = json.loads(self.path.read_text(encoding="utf-8"))["rows"] if self.path.exists() else []

    def add(self, row):
        """Kept at once, so that a run that is stopped keeps what it has."""
        stamped = {**row, "machine": machine.line(machine.describe())}
        self.rows = merged(self.rows, [stamped], self._keys)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".part")
        partial.write_text(json.dumps({"keys": self._keys, "rows": self.rows}, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, self.path)
