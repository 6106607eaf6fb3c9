"""scripts/checks/header_docs.py.

SPDX-License-Identifier: Apache-2.0
"""

import header_docs
import pytest

TOP = "// What this is for.\n// SPDX-License-Identifier: Apache-2.0\n#pragma once\n\n#include <string>\n\nnamespace sysone {\n\n"
END = "\n}  // namespace sysone\n"


def check(repo, body):
    return header_docs.faults(repo({"model/token_reader.h": TOP + body + END}))


@pytest.mark.parametrize(
    "body",
    [
        "// One idea.\nclass Other {\n public:\n  int Get();\n};\n",
        "// Rows.\n[[nodiscard]] Status Read(const char* path,\n                          int rows);\n",
        "class TokenReader {\n public:\n  int Get();\n};\n",  # the top of token_reader.h tells about it
        "struct Limits {\n  int rows = 0;  // of one pass\n};\n",
        "enum class Kind : int {\n  kOne = 1,  // the first\n};\n",
        "int Rows();  // of one pass\n",
        "int Rows(int first,  // inclusive\n         int last);\n",
        "// A family.\nint Rows();\nint Columns();\n",
        "// Template.\ntemplate <typename T>\nT Least(T a, T b) {\n  return a < b ? a : b;\n}\n",
        "class Later;\nstruct Too;\nenum class Also : int;\n",
        "using Text = std::string;\nusing Reader = std::function<void(int)>;\n",
        "inline constexpr int kRows = 4;\ninline constexpr int kBytes = static_cast<int>(sizeof(int));\n",
        "static_assert(sizeof(int) == 4);\n",
        "BEFORE_NAMESPACE();\n",
        'constexpr char kBrace[] = "{";\n',
    ],
)
def test_described_declarations_pass(repo, body):
    assert check(repo, body) == []


@pytest.mark.parametrize(
    "body, name, line",
    [
        ("class Other {\n public:\n  int Get();  // a comment of its own\n};\n", "Other", 1),
        ("struct Limits {\n  int rows = 0;\n};\n", "Limits", 1),
        ("struct alignas(64) Line {\n  int rows = 0;\n};\n", "Line", 1),
        ("enum class Kind : int { kOne };\n", "Kind", 1),
        ("template <typename T>\nclass Box {\n  T value_;\n};\n", "Box", 1),
        ("int Rows();\n", "Rows", 1),
        ("[[nodiscard]] inline int Rows(int a) {\n  return a;  // comment inside\n}\n", "Rows", 1),
        ("bool operator==(const A& a, const A& b);\n", "operator==", 1),
        ("// Described.\nint Rows();\n\nint Columns();\n", "Columns", 4),
        ("// Floating comment.\n\nint Rows();\n", "Rows", 3),
    ],
)
def test_a_declaration_without_a_comment_is_named(repo, body, name, line):
    found = check(repo, body)
    assert found == [f"model/token_reader.h:{TOP.count(chr(10)) + line}: {name} has no comment; say what a caller needs to know"]


@pytest.mark.parametrize(
    "text",
    [
        "#pragma once\n// SPDX-License-Identifier: Apache-2.0\n",
        "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n",
        "// Purpose. SPDX-License-Identifier: Apache-2.0\n#pragma once\n",
        "// Purpose.\n#pragma once\n",
        "",
    ],
)
def test_a_header_without_purpose_or_licence_line_is_named(repo, text):
    assert header_docs.faults(repo({"base/a.h": text})) != []


def test_headers_of_tests_are_not_public(repo):
    assert header_docs.faults(repo({"base/a.h": TOP + END, "tests/base/b.h": "int F();\n"})) == []


def test_an_empty_repository_is_a_fault(repo):
    assert header_docs.faults(repo({})) != []
