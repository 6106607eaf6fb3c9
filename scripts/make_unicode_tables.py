#!/usr/bin/env python3
"""Writes model/unicode_classes.inc and model/unicode_nfc.inc: the character classes and canonical compositions of the `tokenizers` library.

The library mixes several Unicode versions (its regex engine, its standard library and its normaliser differ), so the
tables are read off the library itself, one code point at a time, instead of being taken from one Unicode release.
Run it in an environment that has `tokenizers`, and only to move to a newer version of that library:

    .venv/test/bin/python scripts/make_unicode_tables.py

SPDX-License-Identifier: Apache-2.0
"""
import pathlib
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)
HANGUL_VOWELS_AND_TAILS = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
# Bits as in model/unicode.h.
LETTER, NUMBER, MARK, SPACE, DIGIT, WORD, NFC_CHECK = (1 << i for i in range(7))


def chunks(size):
    return (CODE_POINTS[i : i + size] for i in range(0, len(CODE_POINTS), size))


def regex_class(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    found = set()
    for chunk in chunks(4096):
        kept = set()
        for _, (start, end) in split.pre_tokenize_str("".join(map(chr, chunk))):
            kept.update(range(start, end))
        found.update(c for i, c in enumerate(chunk) if i not in kept)
    return found


def digits():
    split = pre_tokenizers.Digits(individual_digits=True)
    found = set()
    for chunk in chunks(4096):
        text = "".join("a" + chr(c) + "a" for c in chunk)
        for _, (start, end) in split.pre_tokenize_str(text):
            if end - start == 1 and start % 3 == 1:
                found.add(chunk[start // 3])
    return found


def added_token_classes():
    """The \\w and \\s that single_word and rstrip of an added token look at."""

    def after_token(**flags):
        tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
        tokenizer.add_tokens([AddedToken("@@", normalized=False, **flags)])
        mark = tokenizer.token_to_id("@@")
        for chunk in chunks(4096):
            for c, encoding in zip(chunk, tokenizer.encode_batch(["@@" + chr(c) for c in chunk])):
                yield c, encoding, mark

    words = {c for c, e, mark in after_token(single_word=True) if mark not in e.ids}
    spaces = {c for c, e, mark in after_token(rstrip=True) if e.offsets[e.ids.index(mark)][1] == 3}
    return words, spaces


def nfd(text, normalizer=normalizers.NFD()):
    return normalizer.normalize_str(text)


def nfc(text, normalizer=normalizers.NFC()):
    return normalizer.normalize_str(text)


def combining_classes():
    """Finds each class by seeing which marks of known class a character is sorted before."""
    last = "\u0345"  # of the highest class, 240
    known = {240: last}
    for c in CODE_POINTS:
        value = unicodedata.combining(chr(c))
        # The library's normaliser is older than Python's: only marks that it knows can serve as a measure.
        if value and nfd(last + chr(c)) == chr(c) + last:
            known.setdefault(value, chr(c))
    values = sorted(known)

    def passes(c, value):
        """Whether `c` is sorted before a mark of this class: 0 < class of c < value."""
        return c != ord(known[value]) and nfd(known[value] + chr(c)) == chr(c) + known[value]

    classes = {}
    for c in CODE_POINTS:
        if len(nfd(chr(c))) != 1 or c in HANGUL_SYLLABLES:
            continue
        if passes(c, values[-1]):
            first_passed = next(v for v in values if passes(c, v))
            classes[c] = max(v for v in values if v < first_passed)
        elif nfd(chr(c) + known[values[0]]) == known[values[0]] + chr(c):
            classes[c] = values[-1]
    return classes


def decompositions():
    """(composed, first, second) that compose again, and (code point, full decomposition) that do not."""
    pairs, one_way = [], []
    for c in CODE_POINTS:
        full = nfd(chr(c))
        if full == chr(c) or c in HANGUL_SYLLABLES:
            continue
        if nfc(chr(c)) == chr(c):
            first = nfc(full[:-1])
            assert len(first) == 1 and nfc(first + full[-1]) == chr(c), hex(c)
            pairs.append((c, ord(first), ord(full[-1])))
        else:
            assert 1 <= len(full) <= 3, hex(c)
            one_way.append((c, *map(ord, full), *([0] * (3 - len(full)))))
    return pairs, one_way


def ranges(values):
    """{code point: value} as [first, last, value] rows."""
    rows = []
    for c in sorted(values):
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == values[c]:
            rows[-1][1] = c
        else:
            rows.append([c, c, values[c]])
    return rows


def write_table(out, comment, declaration, rows):
    out.write(f"\n// {comment}\nconstexpr {declaration}[] = {{\n")
    line = "   "
    for row in rows:
        cell = " {" + ", ".join(f"0x{v:X}" if v > 255 else str(v) for v in row) + "},"
        if len(line) + len(cell) > 140:
            out.write(line + "\n")
            line = "   "
        line += cell
    out.write(line + "\n};\n")


def write_file(name, includer, tables):
    with open(pathlib.Path(__file__).parent.parent / "model" / name, "w", encoding="ascii") as out:
        out.write(
            f"// Character tables of the `tokenizers` library, version {tokenizers.__version__}, for {includer} alone.\n"
            "// Generated by scripts/make_unicode_tables.py: do not edit.\n"
            "// SPDX-License-Identifier: Apache-2.0\n"
            "// clang-format off\n"
        )
        for table in tables:
            write_table(out, *table)
        out.write("// clang-format on\n")


def main():
    words, spaces = added_token_classes()
    assert spaces == regex_class(r"\s"), "the library's two notions of white space differ"
    ccc = combining_classes()
    pairs, one_way = decompositions()
    check = set(ccc) | {row[0] for row in one_way} | {second for _, _, second in pairs}
    check.update(HANGUL_VOWELS_AND_TAILS)
    classes = {}
    for bit, members in (
        (LETTER, regex_class(r"\p{L}")),
        (NUMBER, regex_class(r"\p{N}")),
        (MARK, regex_class(r"\p{M}")),
        (SPACE, spaces),
        (DIGIT, digits()),
        (WORD, words),
        (NFC_CHECK, check),
    ):
        for c in members:
            classes[c] = classes.get(c, 0) | bit
    singles = [row[:2] for row in one_way if not row[2]]
    longer = [row for row in one_way if row[2]]
    write_file(
        "unicode_classes.inc",
        "unicode.cc",
        [("First and last code point, CharClass bits.", "ClassRange kClassRanges", ranges(classes))],
    )
    write_file(
        "unicode_nfc.inc",
        "nfc.cc",
        [
            ("First and last code point, canonical combining class.", "CombiningRange kCombiningRanges", ranges(ccc)),
            ("Composed, first, second: both ways.", "Composition kCompositions", pairs),
            ("Code point and the one that always replaces it.", "Singleton kSingletons", singles),
            ("Code point and the sequence that always replaces it.", "Expansion kExpansions", longer),
        ],
    )


if __name__ == "__main__":
    main()
