#!/usr/bin/python3
"""Public headers say what a caller needs: a purpose at the top, and a comment at every class and free function.

A comment stands before the declaration, behind it on the same line, or before the first of a block of declarations
without a blank line between them (one comment for a family). The top of the file also describes the class that the file
is named after, and the comments of its fields describe a struct or an enum. Forward declarations, aliases and constants
need none.

SPDX-License-Identifier: Apache-2.0
"""

import re
import sys

import repository

_LICENCE = "// SPDX-License-Identifier: Apache-2.0"
_LICENCE_WITHIN = 30  # lines
_TYPE = re.compile(r"^(?:template\s*<.*>\s*)?(?:class|struct|union|enum(?: class| struct)?)\s+(?:\[\[\w+\]\]\s*)?(\w+)")
_FUNCTION = re.compile(r"(?:^|[\s&*>])(operator\s*[^\s\w(]+|\w+)\s*\(")
_NO_FUNCTION = re.compile(r"^(?:[A-Z_]+\(|using|typedef|friend|static_assert|extern\s+\"C\"|#|namespace|(?:inline )?constexpr [^(]*=)")


def _blank_strings_and_comments(line):
    line = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', '""', line)
    return line.split("//")[0]


def _declarations(lines):
    """(first line, line behind the last, text without comments) of each declaration at namespace scope."""
    depth, start, parts = 0, None, []
    for number, line in enumerate(lines):
        code = _blank_strings_and_comments(line)
        stripped = code.strip()
        if start is None and depth == 0 and (not stripped or stripped[0] in "#}" or stripped.startswith("namespace")):
            continue  # a namespace's braces do not count as depth
        if start is None:
            start = number
        parts.append(stripped)
        depth += code.count("{") - code.count("}")
        if depth == 0 and stripped.endswith((";", "}")):
            yield start, number + 1, " ".join(parts)
            start, parts = None, []


def _signature(lines):
    """The lines of a function up to its body."""
    for number, line in enumerate(lines):
        if "{" in _blank_strings_and_comments(line):
            return lines[: number + 1]
    return lines


def _described(lines, start, end, text, name, stem):
    """Whether a comment belongs to the declaration `text` of lines[start:end]."""
    if "//" in lines[start] or name.lower() == stem.replace("_", ""):
        return True
    if re.match(r"(struct|enum|union)\b", text) and any("//" in line for line in lines[start:end]):
        return True
    if not _TYPE.match(text) and any("//" in line for line in _signature(lines[start:end])):
        return True
    while start > 0 and lines[start - 1].strip():
        start -= 1
        if lines[start].lstrip().startswith("//"):
            return True
        if re.match(r"\s*(namespace\b|#)", lines[start]):
            return False
    return False


def _declared_name(text):
    """The name of a class or function that needs a comment; None for everything else."""
    text = re.sub(r"\[\[.*?\]\]\s*|alignas\([^)]*\)\s*", "", text)
    if _NO_FUNCTION.match(text):
        return None
    if match := _TYPE.match(text):
        return None if re.fullmatch(r"[^{(]*;", text) else match[1]
    before_body = re.sub(r"^template\s*<[^()]*?>\s*(?=\w)", "", text.split("{")[0])
    match = _FUNCTION.search(before_body)
    is_variable = match and "=" in before_body[: match.start(1)]
    return match[1] if match and not is_variable else None


def _header_faults(content, stem):
    lines = content.splitlines()
    if not lines or not lines[0].startswith("//") or lines[0].startswith("// SPDX"):
        yield 1, "the first line must be a comment that tells the header's purpose"
    if _LICENCE not in lines[:_LICENCE_WITHIN]:
        yield 1, f'a line of its own must say "{_LICENCE}"'
    for start, end, text in _declarations(lines):
        name = _declared_name(text)
        if name and not _described(lines, start, end, text, name, stem):
            yield start + 1, f"{name} has no comment; say what a caller needs to know"


def faults(root):
    headers = [path for path in repository.files(root, ".h") if path.parts[0] != "tests"]
    if not headers:
        return [f"{root}: no headers were found"]
    found = []
    for path in headers:
        content = (root / path).read_text(encoding="utf-8")
        found += [f"{path}:{number}: {fault}" for number, fault in _header_faults(content, path.stem)]
    return found


if __name__ == "__main__":
    sys.exit(repository.run(faults))
