"""Seeded texts that look for trouble in a tokenizer: every script, marks that need normalising, emoji, controls, runs,
digits, and special tokens, whole and broken. The same seed gives the same texts.

SPDX-License-Identifier: Apache-2.0
"""
import random
import unicodedata

SPECIAL = "\ufdd0"  # a noncharacter: replaced by one of the tokenizer's own added tokens

ENGLISH = (
    "the of and a to in is you that it he was for on are as with his they I at be this have from or one had by word but not "
    "what all were we when your can said there use an each which she do how their if will up other about out many then them "
    "these so some her would make like him into time has look two more write go see number no way could people my than first "
    "water been call who oil its now find long down day did get come made may part invoice refund customer unacceptable "
    "decision probability temperature questionnaire internationalisation Hello World OpenAI JSON HTTP Paris London Berlin "
    "don't can't we'll they're I've it's I'm he'd YOU'RE WE'VE IT'S O'Brien rock'n'roll 'tis y'all SHE'LL he'S it'\u017f wa\u017fh "
    "'\u017fell '\u017fome \u017fell 'twas 'sold 'reason 'venus 'many 'llama 'done 'LLAMA"
).split()
PUNCTUATION = list(".,;:!?-_()[]{}<>\"'`~@#$%^&*+=|\\/") + ["...", "--", "=>", "::", "!=", "</", "/>", "'s", "'ll", "''", "\u2019s", "\u201c", "\u2014"]
EMOJI = [
    "\U0001F600", "\U0001F469\u200d\U0001F680", "\U0001F3F3\ufe0f\u200d\U0001F308", "\U0001F44D\U0001F3FD", "\u2764\ufe0f",
    "\U0001F468\u200d\U0001F469\u200d\U0001F467\u200d\U0001F466", "\U0001F1EB\U0001F1F7", "1\ufe0f\u20e3", "\u263a", "\U0001FAE8",
]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\t\t", " \n", "\n ", "\u00a0", "\u2003", "\u3000", "\u2028", "\u0085",
          "\x0b", "\x0c", "\r", "    ", "        ", "\u202f", "\u1680", "\u200b", "\ufeff"]
BROKEN_SPECIALS = ["<|im_start|", "<|", "|>", "<|im_end>", "im_start|>", "<|im_start|><", "< |im_end|>", "<think", "<|endoftext", "[INST", "<<", "<|<|"]


def _blocks():
    """Areas of 64 code points, so that each script is drawn as often as any other. Characters that are newer than this
    Python's Unicode are among them: the library's regex engine knows some."""
    def kinds(block):
        return {unicodedata.category(c) for c in block}

    blocks = []
    for first in (*range(0, 0xD800, 64), *range(0xF900, 0x20000, 64), 0x20000, 0x2A6C0, 0x2F800, 0x31340, 0xE0000, 0xE0100):
        block = "".join(map(chr, range(first, first + 64)))
        if kinds(block) == {"Cn"} and not 0x10800 <= first < 0x1F000:
            continue
        # The large ideograph and syllable areas would drown the rest: one block in sixteen of them is kept.
        large = unicodedata.name(block[0], "").startswith(("CJK UNIFIED", "HANGUL SYLLABLE", "CJK COMPAT", "TANGUT", "YI ", "EGYPTIAN"))
        if not large or first % 1024 == 0:
            blocks.append(block)
    return blocks


class Texts:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.blocks = _blocks()
        self.marks = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) in ("Mn", "Mc")]
        self.common_marks = [chr(c) for c in range(0x300, 0x346)]
        self.digits = "0123456789" * 6 + "".join(
            chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) in ("Nd", "Nl", "No"))
        self.parts = [
            (self._words, 30), (self._script, 20), (self._marked, 8), (self._emoji, 5), (self._spaces, 10), (self._numbers, 8),
            (self._anything, 6), (self._controls, 2), (self._run, 1), (self._special, 6), (self._broken, 3), (self._code, 4),
            (self._hangul, 2),
        ]
        self.makers = [m for m, _ in self.parts]
        self.weights = [w for _, w in self.parts]

    def distinct(self, count):
        texts = {}
        while len(texts) < count:
            texts[self.text()] = None
        return list(texts)

    def text(self):
        count = self.random.choice((1, 1, 1, 2, 2, 3))
        return "".join(make() for make in self.random.choices(self.makers, self.weights, k=count))

    def _words(self):
        r = self.random
        words = r.choices(ENGLISH, k=r.randint(1, 5))
        if r.random() < 0.3:
            words = [r.choice((w.upper(), w.capitalize(), w + r.choice(PUNCTUATION), r.choice(PUNCTUATION) + w)) for w in words]
        return r.choice((" ", " ", " ", "")) + r.choice((" ", " ", " ", "  ", "\n", "", "_")).join(words)

    def _script(self):
        r = self.random
        block = r.choice(self.blocks)
        text = "".join(r.choices(block, k=r.randint(1, 12)))
        if r.random() < 0.4:
            text += r.choice((" ", "'", ".", "\n")) + "".join(r.choices(block, k=r.randint(1, 6)))
        return unicodedata.normalize(r.choice(("NFD", "NFC")), text) if r.random() < 0.3 else text

    def _marked(self):
        r = self.random
        marks = self.common_marks if r.random() < 0.6 else self.marks
        bases = "aeiounsAEIOUNS\u00e9\u00e0\u1ea1\u0915\u0d15\u0627\u05d0 1.\u1100\uac00\n"
        return "".join(r.choice(bases) + "".join(r.choices(marks, k=r.randint(0, 4))) for _ in range(r.randint(1, 6)))

    def _emoji(self):
        return "".join(self.random.choices(EMOJI, k=self.random.randint(1, 4)))

    def _spaces(self):
        return "".join(self.random.choices(SPACES, k=self.random.randint(1, 5)))

    def _numbers(self):
        r = self.random
        return r.choice(("", " ", "$", "-")) + "".join(r.choices(self.digits, k=r.randint(1, 9))) + r.choice(("", ".5", "%", "km", ","))

    def _anything(self):
        r = self.random
        return "".join(chr(c) for c in (r.randrange(0x110000) for _ in range(r.randint(1, 8))) if not 0xD800 <= c < 0xE000)

    def _controls(self):
        return "".join(map(chr, self.random.choices((*range(0x20), *range(0x7F, 0xA0), 0x200E, 0x202E, 0xFFFD, 0xFFFF), k=3)))

    def _run(self):
        r = self.random
        unit = r.choice(("a", " ", "\n", "ab", "-", "=", "\u4e2d", "\u0301", "9", "\r\n", " \n", "A", "\t", "'s", "\U0001F600", "e\u0301", "\U00011DE0"))
        return unit * r.choice((r.randint(2, 40), r.randint(2, 40), r.randint(2, 400)))

    def _special(self):
        r = self.random
        return r.choice(("", "", " ", "x", "\n", "\u00e9")) + SPECIAL * r.choice((1, 1, 2)) + r.choice(("", "", " ", "x", "\n", "  ", "'s"))

    def _broken(self):
        return self.random.choice(BROKEN_SPECIALS)

    def _code(self):
        r = self.random
        return r.choice((
            'def f(x):\n    return x ** 2\n\n', '{"id": 1234, "tags": ["a", "b"]}', "for (int i=0; i<n; ++i) {\n\t\tsum += v[i];\n\t}\n",
            "https://example.com/a/b?c=1&d=%20", "SELECT * FROM t WHERE x != 'it''s';", "C:\\Users\\me\\file.txt", "<div class=\"x\">\r\n</div>",
            "x=1;y=2 // \u00e7a va", "aGVsbG8gd29ybGQgaGVsbG8gd29ybGQgaGVsbG8gd29ybGQ=", "0xDEADBEEF, 1e-5, 3.14159", "a.b_c-d+e@f.org"))

    def _hangul(self):
        r = self.random
        jamo = (*range(0x1100, 0x1113), *range(0x1161, 0x1176), *range(0x11A8, 0x11C3), *range(0xAC00, 0xAC60))
        return "".join(map(chr, r.choices(jamo, k=r.randint(1, 10))))


def conformance_texts():
    """Every text and every request body that the public conformance suite sends to a server (here its own mock)."""
    from jevcompat import client, mock, runner

    bodies = []
    send = client.Client.request

    def recording(self, method, path, body=None, **more):
        if body:
            bodies.append(body.decode("utf-8", "replace"))
        return send(self, method, path, body, **more)

    client.Client.request = recording
    try:
        with mock.Running() as server:
            runner.run(server.url, sdk=False)
    finally:
        client.Client.request = send

    import json

    texts = dict.fromkeys(bodies)

    def collect(value):
        if isinstance(value, str):
            texts.setdefault(value)
        elif isinstance(value, dict):
            for key, item in value.items():
                texts.setdefault(key)
                collect(item)
        elif isinstance(value, list):
            for item in value:
                collect(item)

    for body in bodies:
        try:
            collect(json.loads(body))
        except ValueError:
            pass  # some bodies are malformed on purpose; their text is in already
    return [t for t in texts if not any(0xD800 <= ord(c) < 0xE000 for c in t)]
