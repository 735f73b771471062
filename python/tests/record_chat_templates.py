#!/usr/bin/env python3
"""Records what Jinja 3.1 makes of templates, as tests/text/data/chat_templates.json.

Random templates of every statement, operator, filter, test and method that chat templates use, and conversations in
templates in the manner of published ones. Jinja is set up as Hugging Face's transformers sets it up. Needs `jinja2`:

    python/tests/record_chat_templates.py [SEED COUNT]

With a seed and a count, nothing is written: so many further templates are compared with the package tenon.
"""

import copy
import datetime
import json
import pathlib
import random
import sys
import warnings

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

OUT = pathlib.Path(__file__).parents[2] / "tests/text/data/chat_templates.json"

VARIABLES = {"a": 1, "b": -7, "c": 2.5, "s": " Hello <b> ", "t": "x,y,,z", "e": "", "l": [3, 1, 2], "m": ["b", "A", "c"],
             "d": {"k": 1, "n": None, "z": [1, {"q": "w"}]}, "n": None, "T": True, "F": False, "u": "üñ日本",
             "ld": [{"r": "user", "c": "hi", "v": 2}, {"r": "bot", "c": "Yo", "v": 1}, {"r": "user", "c": "", "v": 3}]}

LEAVES = [*VARIABLES, "1", "0", "-2", "2.5", "'q'", "none", "missing", "[1, 2]", "{'a': 1}", "()"]
ARITHMETIC = ["+", "-", "*", "/", "//", "%", "~"]
COMPARISONS = ["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
FILTERS = ["length", "upper", "lower", "trim", "title", "capitalize", "first", "last", "list", "string", "int", "float",
           "abs", "reverse | list", "sort", "join", "tojson", "sum", "max", "min", "default(5)", "d(3, true)", "round", "count",
           "wordcount", "e", "dictsort", "replace('l', 'LL')", "indent(2)", "join('-')", "trim('x')",
           "sort(reverse=true)", "truncate(3, true, '..', 0)", "tojson(indent=2)", "unique | list", "batch(2) | list",
           "map('upper') | list", "select | list", "reject('none') | list", "selectattr('v', 'gt', 1) | list",
           "map(attribute='r') | join(' ')", "groupby('r') | list | length", "items | list"]
TESTS = ["defined", "undefined", "none", "string", "number", "mapping", "iterable", "sequence", "boolean", "integer",
         "float", "odd", "even", "true", "false", "upper", "lower", "divisibleby(3)", "eq(1)", "in([1, 2])"]
ITEMS = ["0", "-1", "1", "'k'", "'c'", "5", "1:", "-2:", ":2", "::-1", "::2", "1:3", ":-1", "-5:10", ":0", "3:1:-1"]
METHODS = ["k", "r", "strip()", "split()", "split(',')", "upper()", "lower()", "title()", "startswith('x')",
           "endswith((' ', 'z'))", "replace('l', '1', 1)", "find('l')", "items() | list", "keys() | list",
           "values() | list", "get('k', 9)", "lstrip()", "rstrip(' >')", "rsplit(',', 1)", "splitlines()",
           "count('l')", "isdigit()", "isalpha()", "index(1)", "capitalize()", "removeprefix(' ')", "zfill(5)",
           "partition(',')", "format(1)"]

# Each method, filter, test and loop variable with the values that it is for, and with others; None is what Jinja refuses.
CALLS = [
    *(f"{{{{ {value}.{method} }}}}" for value in ("s", "t", "e", "u", "'x y  z\\n'") for method in (
        "split()", "split(none, 1)", "split(',', 1)", "rsplit(',', 1)", "rsplit()", "splitlines()", "splitlines(true)",
        "partition(',')", "rpartition(',')", "strip(' >')", "lstrip('x')", "rstrip()", "title()", "capitalize()", "swapcase()",
        "zfill(6)", "join(['1', '2'])", "join(m)",
        "find('y')", "rfind(',')", "index('y')", "rindex(',')", "count('l')", "startswith(('x', ' '))", "endswith('>')",
        "removesuffix(' ')", "removeprefix('x')", "isdigit()", "isnumeric()", "isalpha()",
        "isalnum()", "isspace()", "isupper()", "islower()", "replace('l', 'L')", "upper()",
        "center(9)", "center(16, '*')", "ljust(14, '.')", "rjust(14)", "rjust(3)", "ljust(5, 'ab')", "center('x')", "center()",
        "nothing()", "strip(1)", "split(1)")),
    *(f"{{{{ {call} }}}}" for call in (
        "'½'.isnumeric()", "'A1'.isupper()", "'{} {0}'.format(1)", "'{}-{}'.format(s, 2)",
        "'{0}{1}{0}'.format('a', 'b')", "'{x}'.format(x=1)", "'%s %d' % ('a', 3)", "'%d%%' % 5",
        "'%d' % 'a'", "'%.2f' % c", "'%5.1f|%-8s|%+d' % (c, s, a)", "'%05d' % b", "'%x %X %#x %o %#o' % (255, 255, 255, 8, 8)",
        "'%x %#08x' % (b, b)", "'%e %g %G' % (c, 0.00001, 1e20)", "'%c%c' % (65, 'é')", "'%c' % s", "'%#.0g %#.1G %#.2g' % (1, c, 9)",
        "'%.3s|%8.2s|%-4s|' % (u, s, u)",
        "'%r' % (s,)", "'%(k)s %(k)03d' % d", "'%(q)s' % d", "'%(k)s %s' % d", "'%(k' % d", "'%d %d' % (3.99, -3.99)", "'% d' % 5",
        "'%d' % true", "'%s %s' % 1", "'%z' % 1", "'%' % 1", "'%.0f %#.0f' % (2.5, 2.5)", "'%08.3f|%-8.3f|' % (-1.5, -1.5)",
        "'%.3d|%6.3d|%06.3d|%-6.3d|' % (7, 7, 7, 7)", "'%x' % c", "'%f' % 'x'", "'%5%' % ()", "'%s' % l", "'%s' % (l, 1)",
        "'%s-%s' | format(1, 'b')", "'%(x).1f' | format(x=2.25)", "'%s' | format(1, x=2)", "'%s' | format", "'abc' | center(8)",
        "'abcd' | center(7)", "u | center(9)", "l | center(12)", "s | center",
        "d.get('k')", "d.get('q')", "d.get('q', 2)", "d.items() | list", "d.keys() | list", "d.values() | list",
        "d.copy()", "d.pop('k')", "l.index(1)", "l.index(9)", "l.count(3)", "m.index('A')", "l.append(1)", "range(3) | list",
        "range(5, 1, -2) | list", "range(1, 3) | list", "range(0, 3, 0) | list", "dict(a=1, b='x')", "namespace(x=1).x",
        "s is filter", "'upper' is filter", "'odd' is test",
        "'nothing' is filter", "range is callable", "s is callable", "l is sameas l", "1 is sameas 1", "1 is sameas 2",
        "1 is lt 2", "2 is ge(2)", "2 is le 1", "2 is gt 1", "2 is ne 2", "1 is in l", "'q' is in 'qr'", "s is lower", "'AB' is upper",
        "2.0 is integer", "b is odd", "b is divisibleby 7", "n is none", "missing is undefined", "d is mapping", "l is sequence",
        "-7 // 2", "-7 % 3", "7.5 // 2", "2 ** 3", "1 / 0", "'a' < 'b'", "[1, 2] < [1, 3]", "'a' < 1", "1 in d", "'k' in d",
        "s in 1", "l + [4]", "'ab' * 2", "l * 2", "-l", "not l", "s[1]", "s[-2:]", "s[::2]", "u[1:3]", "d['z'][1].q", "l[7]",
        "d.nothing", "d.nothing.more", "missing.more")),
    *(f"{{{{ '{text}' | int }}}} {{{{ '{text}' | float }}}}" for text in (
        "0x10", "9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775808", "1_000", "1__0", "_1", "1_",
        "1_000.5", "1_.5", "1e1_0", "+5", "-5", " +5\\n", "+-5", "-+5", "- 5", "1e3", "1E+3", "1e400", "-1e400", "1e-400", "nan", "NaN",
        "-nan", "nan(1)", "inf", "Infinity", "-infinity", "infin", ".5", "5.", ".", "1e", "e1", "1.5.2", "3.7", "-3.7", "0b1", "0o7",
        "007", "", "1\\0", "0." + 330 * "0" + "1", 330 * "1" + "e-320", "0.1", "3.5", "3,5")),
    *(f"{{{{ {call} }}}}" for call in (
        *(f"{value} | round({precision})" for value in (1234, 1250, 1350, -1250, -1251, "9123456789012345678", "true") for precision in (
            "-2", "-3", "-4", "-20", "2", "400", "-400", "2, 'ceil'", "-2, 'ceil'", "-2, 'floor'", "0, 'floor'", "-400, 'floor'", "none")),
        *(f"{value} | round({precision})" for value in (
            2.675, 1.005, 0.5, 1.5, -2.5, 25.0, 35.0, 5.0, 1e15, "1.23456e-10", "('nan' | float)", "('inf' | float)") for precision in (
                "", "1", "2", "12", "20", "400", "-1", "-22", "-300", "-400", "1, 'ceil'", "20, 'ceil'", "400, 'ceil'", "-1, 'floor'", "none")),
        "5e-324 | round(323)", "1 | round('x')", "1 | round(0, 'up')", "'x' | round", "1e308 | round(10, 'ceil')", "1e300 | round(-299)", "1e22 | round(-22)", "7e22 | round(-23)", "-0.5 | round(0, 'ceil')",
        *(f"{left} {sign} {right}" for left in ("1.0", "-1.0", "0.0", "-0.0", "5.5", "1e300", "('inf' | float)") for sign in ("%", "//")
          for right in ("0.1", "-0.1", "3", "-3.0", "1e-10", "('inf' | float)", "0.0")),
        "0 ** -1", "0.0 ** -1", "2 ** -1", "2.0 ** 10000", "2 ** 0.5", "9007199254740993 / 1", "9223372036854775807 / 3",
        *(f"{left} {sign} {right}" for left, right in (
            ("9007199254740993", "9007199254740992.0"), ("9223372036854775807", "9223372036854775808.0"), ("1", "1.5"), ("-1", "-1.5"),
            ("true", "1.0"), ("1", "('inf' | float)"), ("1", "('nan' | float)"), ("[1]", "[('nan' | float)]")) for sign in ("==", "<", "<=", ">", ">=")),
        *(f"{value} is {test}" for value in ("1", "7", "-3", "7.5", "3.0", "-3.0", "4.0", "('nan' | float)", "('inf' | float)", "(-9223372036854775807 - 1)")
          for test in ("odd", "even", "divisibleby(9223372036854775807)", "divisibleby(2.5)", "divisibleby(-1)", "divisibleby(0)",
                       "le('nan' | float)", "ge('nan' | float)")),
        "'abc def' | truncate(3, true, '', 9223372036854775807)", "'abc def' | truncate(3, true, '', -3)", "'abc' | truncate(2)",
        "1.5 | int", "('nan' | float) | int", "('inf' | float) | int", "([0.1] * 10) | sum", "[2, 1.5] | sum", "'%d' % 9.22e18",
        "'{00001} {1}'.format(1, 2)", "'abc'[::9223372036854775807]", "'abc'[-9223372036854775807:]", "[1, 2][-9223372036854775807]",
        "range(9223372036854775806, 9223372036854775807) | list", "{(1, 2): 3} | tojson", "{1.5: 2, none: 3, true: 4} | tojson",
        "(range(30) | list + [9007199254740993, 9007199254740992.0]) | sort")),
    *(f"{{{{ {value} | {call} }}}}" for value, calls in {
        "s": ("length", "upper", "title", "capitalize", "trim", "trim(' >')", "wordcount", "list", "first", "last", "reverse", "e",
              "escape", "truncate(6)", "truncate(5, true)", "truncate(7, false, '~', 0)", "indent(2, true)",
              "replace('l', '1', 1)", "default('x')", "int", "float", "abs", "string", "safe", "tojson", "format(1)"),
        "'12'": ("int", "float", "int(3)"), "'x'": ("int(7)", "float(1.5)", "default('y', true)"),
        "c": ("round", "round(1)", "round(0, 'floor')", "round(method='ceil')", "int", "abs", "string", "tojson"),
        "b": ("abs", "float", "string", "round", "length"), "n": ("default('x')", "default('x', true)", "string", "tojson", "length"),
        "missing": ("default('x')", "d", "length", "list", "string", "upper"),
        "l": ("sort", "sort(reverse=true)", "sum", "sum(start=10)", "min", "max", "first", "last", "join('-')", "join", "reverse | list",
              "unique | list", "batch(2) | list", "batch(2, 0) | list", "map('string') | list",
              "select('odd') | list", "reject('gt', 1) | list", "select | list", "tojson(indent=2)", "length", "list",
              "map('nothing') | list", "select('nothing') | list"),
        "m": ("sort", "sort(case_sensitive=true)", "sort(true)", "unique | list", "unique(true) | list", "map('lower') | join",
              "map('replace', 'b', 'B') | list", "min", "max", "join(', ')", "sum", "sum(start='')"),
        "d": ("dictsort", "dictsort(true)", "dictsort(false, 'value')", "dictsort(reverse=true)", "items | list", "length", "list",
              "tojson", "first", "attr('k')"),
        "ld": ("map(attribute='r') | list", "map(attribute='q', default=0) | list", "sum(attribute='v')", "sort(attribute='v') | map(attribute='c') | list",
               "sort(attribute='r,v') | map(attribute='v') | list", "groupby('r') | list", "groupby('r') | map('first') | list",
               "selectattr('c') | list | length", "rejectattr('v', 'gt', 1) | list", "selectattr('r', 'equalto', 'bot') | list",
               "join(', ', attribute='c')", "min(attribute='v')", "max(attribute='v')", "unique(attribute='r') | list", "map('nothing', 1) | list"),
    }.items() for call in calls),
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}"
    "{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}"
    "{{ loop.changed(i > 1) }};{% endfor %}",
    "{% for i in l %}{% for j in m %}{{ loop.depth }}{{ loop.cycle('x') }}{% endfor %}{% endfor %}",
    "{% set ns = namespace(x=1) %}{{ ns | attr('x') }}{{ 5 | int(0, 16) }}{{ ' a b  c '.rsplit(none, 2) }}",
    "{% for i in l %}{{ loop.nothing }}{% endfor %}", "{% for i in l %}{{ loop.cycle() }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for a, b in l %}{{ a }}{% endfor %}",
    "{% for x in 5 %}{% endfor %}",
]

CONVERSATION = [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "Hi <|im_end|>!"},
                {"role": "assistant", "content": "<think>\nhm\n</think>\n\n Hello. "}, {"role": "user", "content": "Größe?"}]
CALL = [{"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo", "days": 3}}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "{\"t\": 12}"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The \"weather\" in <b>å</b>",
                                           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
IN_THE_MANNER_OF = [
    # Qwen: tools as lines of JSON, thoughts of earlier turns left out.
    """{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n' }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n<|im_end|>\\n" }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content }}
    {%- if message.tool_calls %}
        {%- for call in message.tool_calls %}
            {{- '\\n<tool_call>\\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
            {{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
""",
    # Mistral: the system message in front of the last user's, turns that are counted, an exception.
    """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set rest = messages[1:] %}
{% else %}{% set rest = messages %}{% endif %}
{% set ns = namespace(index=0) %}
{%- for message in rest if message.role != 'tool' %}
  {%- if (message.role == 'user') != (ns.index % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
  {%- set ns.index = ns.index + 1 %}
  {%- if message.role == 'user' %}
    {{- '[INST] ' }}{% if loop.last and system is defined %}{{ system + '\\n\\n' }}{% endif %}{{ message.content + '[/INST]' }}
  {%- else %}
    {{- ' ' + message.content | trim + eos_token }}
  {%- endif %}
{%- endfor %}""",
    # Llama 3.1: a date, macros, blocks that are set.
    """{%- macro turn(role, content) %}<|start_header_id|>{{ role }}<|end_header_id|>\\n\\n{{ content | trim }}<|eot_id|>{% endmacro %}
{%- if strftime_now is defined %}{% set today = strftime_now("%d %b %Y") %}{% else %}{% set today = "26 Jul 2024" %}{% endif %}
{{- bos_token }}{% set head %}Today Date: {{ today }}
{% endset %}
{{- turn('system', head) }}
{%- for message in messages %}{{ turn(message['role'], message.content) }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif -%}""",
]


def environment():
    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

        def _body(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals.update(raise_exception=raise_exception,
                        strftime_now=lambda form: datetime.datetime(2024, 7, 26).strftime(form))
    return made


class Writer:
    """Writes random templates."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def one(self, choices):
        return self.random.choice(choices)

    def expression(self, depth=0):
        if depth > 2 or self.random.random() < 0.3:
            return self.one(LEAVES)
        part = lambda: self.expression(depth + 1)
        return self.one([
            lambda: f"({part()} {self.one(ARITHMETIC)} {part()})",
            lambda: f"({part()} {self.one(COMPARISONS)} {part()})",
            lambda: f"({part()} {self.one(['and', 'or'])} {part()})",
            lambda: f"(not {part()})",
            lambda: f"({part()} if {part()} else {part()})",
            lambda: f"({part()}) | {self.one(FILTERS)}",
            lambda: f"({part()}) | {self.one(FILTERS)}",
            lambda: f"(({part()}) is {self.one(['', 'not '])}{self.one(TESTS)})",
            lambda: f"({part()})[{self.one(ITEMS)}]",
            lambda: f"({part()}).{self.one(METHODS)}",
            lambda: f"[{part()}, {part()}]",
            lambda: f"{{'x': {part()}, 'y': {part()}}}",
            lambda: f"range({self.random.randrange(5)}) | list",
        ])()

    def space(self):
        return self.one(["", "\n", "  ", "\n  ", " x "])

    def sign(self):
        return self.one(["", "", "", "-", "+"])

    def body(self, depth):
        return self.space() + "".join(self.statement(depth + 1) for _ in range(self.random.randrange(1, 3)))

    def statement(self, depth=0):
        part, body, sign = self.expression, lambda: self.body(depth), self.sign
        if depth > 2 or self.random.random() < 0.3:
            return f"{{{{{self.one(['', '-'])} {part(1)} {self.one(['', '-'])}}}}}{self.space()}"
        return self.one([
            lambda: f"{{%{sign()} if {part(2)} {sign()}%}}{body()}{{% elif {part(2)} %}}{body()}{{%- else %}}{body()}"
                    f"{{% endif {sign()}%}}",
            lambda: f"{{%{sign()} for i in {part(2)} {sign()}%}}{body()}{{{{ loop.index }}}}{{% else %}}{body()}"
                    f"{{% endfor {sign()}%}}",
            lambda: f"{{% set q = {part(1)} %}}{{{{ q }}}}",
            lambda: f"{{% set w{self.one(['', ' | upper', ' | trim'])} %}}{body()}{{% endset %}}{{{{ w }}}}",
            lambda: f"{{% macro f(x, y={part(3)}) %}}<{{{{ x }}}}|{{{{ y }}}}>{body()}{{% endmacro %}}"
                    f"{{{{ f({part(2)}) }}}}{{{{ f(1, y={part(3)}) }}}}",
            lambda: f"{{% set ns = namespace(v=0) %}}{{% for i in {part(2)} if {part(2)} %}}{{% set ns.v = i %}}"
                    f"{{% if loop.index > 1 %}}{{% {self.one(['break', 'continue'])} %}}{{% endif %}}{body()}{{% endfor %}}"
                    "{{ ns.v }}",
            lambda: self.one(["{# c #}\n", "  {#- c -#}  ", "{% raw %}{{ x }}\n{% endraw %}", "text\n",
                              "{% filter upper %}abc {% endfilter %}", "  {%- set z = 1 -%}  "]),
            lambda: f"{{% with p = {part(2)} %}}{{{{ p }}}}{{% endwith %}}",
            lambda: f"{{% macro g(x) %}}[{{{{ caller(x) }}}}]{{% endmacro %}}{{% call(v) g({part(3)}) %}}{{{{ v }}}}{body()}"
                    "{% endcall %}",
        ])() + self.space()

    def template(self):
        return "".join(self.statement() for _ in range(self.random.randrange(1, 4))) + self.one(["", "\n", "\n\n"])


def rendered(made, template, **variables):
    """What Jinja makes of a template; None where it raises, or prints what only Python has."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # A copy: indent() appends to a list that it is given.
            text = made.from_string(template).render(**copy.deepcopy(variables))
    except Exception:  # noqa: BLE001  any error of a template's
        return None
    # Filters and blocks may have changed the case.
    return None if any(mark in text.lower() for mark in ("<generator", " object at ", "markup(", "<built-in", "<bound")) \
        else text


def cases(made):
    found = []
    for seed in range(100000):
        template = Writer(seed).template()
        want = rendered(made, template, **VARIABLES)
        if want is not None and 2 < len(want) < 400 and len(template) < 500:
            found.append({"template": template, "want": want})
        if len(found) == 600:
            break
    chats = []
    for template in IN_THE_MANNER_OF:
        for messages in CONVERSATION, CONVERSATION[1:], CALL, CONVERSATION[:1] * 2:
            for values in {}, {"tools": TOOLS}, {"enable_thinking": False}:
                want = rendered(made, template, messages=messages, bos_token="<s>", eos_token="</s>",
                                add_generation_prompt=True, **{"tools": None, **values})
                chats.append({"template": template, "messages": messages, "values": values, "want": want})
    calls = [{"template": call, "want": rendered(made, call, **VARIABLES)} for call in CALLS]
    return {"variables": VARIABLES, "templates": found, "calls": calls, "chats": chats}


def compare(made, seed, count):
    import tenon

    differ = same = 0
    for number in range(count):
        template = Writer(seed * 1000003 + number).template()
        want = rendered(made, template, **VARIABLES)
        if want is None:
            continue
        try:
            got = tenon.ChatFormat(template, **VARIABLES).format("m")
        except tenon.Error as error:
            got = error
        same += got == want
        if got != want:
            differ += 1
            print(f"{template!r}\n  want {want!r}\n  got  {got!r}")
    print(f"{same} alike, {differ} differ")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        compare(environment(), int(sys.argv[1]), int(sys.argv[2]))
    else:
        OUT.write_text(json.dumps(cases(environment()), ensure_ascii=False, indent=0) + "\n")
