# Runs a chat template with placeholders instead of message contents, and tells where the contents go.
#
# A placeholder is no string. It can be written out, put together with other text and asked the few questions below; each
# answer becomes a condition ("guard") under which the outcome holds. Everything else that a template could do with a
# content ends the trace: there is no way from a placeholder to a string, so nothing that depends on a content goes
# unnoticed. What is not the same at every rendering (time, chance) ends it, too.
#
# Executed behind the prelude of chat_template.cc, in the same namespace.
# SPDX-License-Identifier: Apache-2.0
import functools
import jinja2.nativetypes


class NoFrame(BaseException):
    """The rendering depends on a content in a way that is not followed. No template can catch it, nor Jinja2's own code."""


class Rope:
    """Text with contents in it: parts are strings and the places of messages."""
    __slots__ = ("_parts", "_guards")

    def __init__(self, parts, guards):
        self._parts, self._guards = parts, guards

    def _ask(self, kind, text=""):
        """Notes a condition on the content that this is; only on one that stands alone."""
        if len(self._parts) != 1 or not isinstance(text, str):
            raise NoFrame
        guard = (kind, self._parts[0], text)
        if guard not in self._guards:
            self._guards.append(guard)

    def startswith(self, text):
        self._ask("starts_otherwise", text)
        return False

    def endswith(self, text):
        self._ask("ends_otherwise", text)
        return False

    def _trimmed(self):
        self._ask("trimmed")
        return self

    def __contains__(self, text):
        self._ask("lacks", text)
        return False

    def __eq__(self, other):
        if isinstance(other, (Rope, Length)):
            raise NoFrame
        if isinstance(other, str):
            self._ask("differs", other)
        return False

    def __ne__(self, other):
        return not self == other

    def __bool__(self):
        if not any(isinstance(part, str) and part for part in self._parts):
            self._ask("not_empty")
        return True

    def __add__(self, other):
        if not isinstance(other, (str, Rope)):
            raise NoFrame
        return join_pieces((self, other))

    def __radd__(self, other):
        if not isinstance(other, str):
            raise NoFrame
        return join_pieces((other, self))

    def _refuse(self, *_):
        raise NoFrame

    __str__ = __repr__ = __format__ = __hash__ = __index__ = __len__ = __iter__ = __getitem__ = __getattr__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __mul__ = __rmul__ = __mod__ = __rmod__ = __int__ = __float__ = _refuse


class Length:
    """How long a placeholder is: only whether it has any text at all can be asked."""
    __slots__ = ("_rope",)

    def __init__(self, rope):
        self._rope = rope

    def __gt__(self, other):
        return other == 0 and bool(self._rope) or Rope._refuse(self)

    def __eq__(self, other):
        return not (self > other)

    def __ne__(self, other):
        return self > other

    def __bool__(self):
        return self > 0

    __str__ = __repr__ = __format__ = __hash__ = __index__ = __getattr__ = __int__ = __float__ = Rope._refuse
    __lt__ = __le__ = __ge__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = Rope._refuse


def join_pieces(values):
    """What Jinja2 does when it puts output together, with placeholders kept."""
    parts, guards = [], None
    for value in values:
        if isinstance(value, Rope):
            guards = value._guards
            parts += value._parts
        else:
            parts.append(str(value))
    return "".join(parts) if guards is None else Rope([part for part in parts if part != ""], guards)


class TracingGenerator(jinja2.nativetypes.NativeCodeGenerator):
    """Output that is not made a string before it is put together."""

    def visit_Concat(self, node, frame):
        self.write("environment.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class TracingEnvironment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    code_generator_class = TracingGenerator
    concat = staticmethod(join_pieces)

    def getattr(self, obj, attribute):
        if not isinstance(obj, (Rope, Length)):
            return super().getattr(obj, attribute)
        if isinstance(obj, Rope) and attribute in ("startswith", "endswith"):
            return getattr(obj, attribute)
        raise NoFrame

    def getitem(self, obj, argument):
        if isinstance(obj, (Rope, Length)) or isinstance(argument, (Rope, Length)):
            raise NoFrame
        return super().getitem(obj, argument)


def no_placeholders(function):
    @functools.wraps(function)
    def checked(*args, **kwargs):
        if any(isinstance(value, (Rope, Length)) for value in (*args, *kwargs.values())):
            raise NoFrame
        return function(*args, **kwargs)

    return checked


def with_placeholder(function, answer):
    """`function`, but `answer` is what it says of a placeholder that comes alone."""
    checked = no_placeholders(function)

    @functools.wraps(function)
    def replaced(*args, **kwargs):
        if len(args) == 1 and not kwargs and isinstance(args[0], Rope):
            return answer(args[0])
        return checked(*args, **kwargs)

    return replaced


def never_the_same(*_args, **_kwargs):
    raise NoFrame


tracing = TracingEnvironment(trim_blocks=True, lstrip_blocks=True,
                             extensions=[GenerationBlock, jinja2.ext.loopcontrols])
# What every string answers.
STRING_TESTS = {"string": True, "defined": True, "undefined": False, "none": False, "mapping": False, "iterable": True,
                "sequence": True, "number": False, "integer": False, "float": False, "boolean": False, "callable": False,
                "true": False, "false": False}
for name, test in environment.tests.items():
    tracing.tests[name] = (with_placeholder(test, lambda _, answer=STRING_TESTS[name]: answer)
                           if name in STRING_TESTS else no_placeholders(test))
for name, function in environment.filters.items():
    tracing.filters[name] = no_placeholders(function)
tracing.filters["string"] = with_placeholder(environment.filters["string"], lambda rope: rope)
tracing.filters["trim"] = with_placeholder(environment.filters["trim"], Rope._trimmed)
for name in ("length", "count"):
    tracing.filters[name] = with_placeholder(environment.filters[name], Length)
tracing.filters["random"] = never_the_same
tracing.globals.update(environment.globals)
tracing.globals.update(strftime_now=never_the_same, lipsum=never_the_same)


def trace(text, special_tokens, roles, kwargs, add_generation_prompt):
    """The frame as JSON, {"parts": [text or place of a message …], "guards": [[kind, place, text] …]}; "" when there is none."""
    guards = []
    messages = [{"role": role, "content": Rope([place], guards)} for place, role in enumerate(roles)]
    try:
        traced = render(tracing.from_string(text), special_tokens, messages, kwargs, add_generation_prompt)
    except (NoFrame, Exception):
        return ""
    return json.dumps({"parts": traced._parts if isinstance(traced, Rope) else [traced], "guards": guards})


# A first use of everything, as in the prelude.
trace("{% macro m(x) %}{{ x | trim }}{% endmacro %}{{ m(messages[0].content) ~ '.' }}", {}, ["user"], "{}", True)
trace("{{ messages[0].content | upper }}", {}, ["user"], "{}", True)
