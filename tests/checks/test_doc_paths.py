"""scripts/checks/doc_paths.py.

SPDX-License-Identifier: Apache-2.0
"""

import doc_paths
import pytest

FILES = {
    "base/json.h": "class Json { static Result<Json> Parse(); };",
    "base/json.cc": "void Json::DumpTo(std::string& out) const {}",
    "kernels/cpu/attention.cc": "void Attention() {}",
    "scripts/setup": "#!/bin/sh\n",
    "CMakeLists.txt": "",
}


def check(repo, page, **more):
    return doc_paths.faults(repo({**FILES, "ARCHITECTURE.md": page, **more}))


@pytest.mark.parametrize(
    "page",
    [
        "`base/json.h`",
        "`json.h`",
        "`base/`",
        "`kernels/cpu`",
        "`base/json.{h,cc}`",
        "`kernels/*/attention.cc`",
        "`scripts/setup`",
        "`build/release/bin/sysone`",
        "[here](base/json.h#top)",
        "[out](https://example.com/base/none.h)",
        "`base/json.h: Parse`",
        "`base/json.cc: Json::DumpTo()`",
        "`kernels/cpu/attention.cc`: `Attention`",
        "| `base/json.h`: `Json`, `Parse` and `Result` |",
        # Not paths of ours.
        "`application/json`",
        "`models--org--name/refs/main`",
        "`POST /v1/systemone`",
        "`Qwen/Qwen3-0.6B`",
        "`a.b`",
        "```\nbase/none.h\n`base/none.h`\n```",
    ],
)
def test_right_pages_pass(repo, page):
    assert check(repo, page) == []


@pytest.mark.parametrize(
    "page, fault",
    [
        ("`base/none.h`", "base/none.h does not exist"),
        ("`none.cc`", "none.cc does not exist"),
        ("`gone/none.cc`", "gone/none.cc does not exist"),
        ("`base/none/`", "base/none/ does not exist"),
        ("`kernels/none`", "kernels/none does not exist"),
        ("`base/json.{h,hh}`", "base/json.hh does not exist"),
        ("`kernels/cuda/*.cc`", "kernels/cuda/*.cc does not exist"),
        ("[here](docs/none.md)", "docs/none.md does not exist"),
        ("`base/json.h: Dump`", "base/json.h has no Dump"),
        ("`base/json.h: Pars`", "base/json.h has no Pars"),
        ("`base/json.h`: `Parse`, `Write`", "base/json.h has no Write"),
        ("`base/json.h`: `Parse` and `Json::Read()`", "base/json.h has no Json::Read()"),
    ],
)
def test_wrong_paths_and_names_are_reported_with_their_line(repo, page, fault):
    assert check(repo, f"# Title\n```\nblock\n```\n{page}\n") == [f"ARCHITECTURE.md:5: {fault}"]


def test_the_readme_is_read_too(repo):
    assert check(repo, "", **{"README.md": "`base/none.h`"}) == ["README.md:1: base/none.h does not exist"]


def test_a_missing_architecture_page_is_a_fault(repo):
    assert doc_paths.faults(repo(FILES)) == ["ARCHITECTURE.md:1: is missing"]
