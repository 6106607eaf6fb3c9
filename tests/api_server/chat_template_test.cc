// SPDX-License-Identifier: Apache-2.0
#include "api_server/chat_template.h"

#include <gtest/gtest.h>
#include <time.h>

#include <fstream>
#include <random>
#include <sstream>
#include <thread>

namespace sysone {
namespace {

const std::string kData = std::string(SYSONE_SOURCE_DIR) + "/tests/api_server/data/";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::shared_ptr<const ChatTemplate> Compiled(
    const std::string& text, const std::map<std::string, std::string>& special_tokens = {}) {
  auto compiled = ChatTemplate::Compile(text, special_tokens);
  if (!compiled.ok()) {
    ADD_FAILURE() << compiled.status().message();
    std::abort();
  }
  return *compiled;
}

Result<std::string> RenderUser(const std::string& text, const std::string& content = "hi",
                               const Json& kwargs = Json()) {
  return Compiled(text)->Render({{"user", content}}, kwargs, true);
}

std::map<std::string, std::string> Strings(const Json& object) {
  std::map<std::string, std::string> strings;
  for (const auto& [key, value] : object.members()) strings[key] = value.string();
  return strings;
}

std::vector<ChatMessage> Messages(const Json& list) {
  std::vector<ChatMessage> messages;
  for (const Json& message : list.items())
    messages.push_back({message.Find("role")->string(), message.Find("content")->string()});
  return messages;
}

TEST(ChatTemplate, RendersEveryGoldenConversationAsTransformersDoes) {
  const Result<Json> goldens = Json::Parse(ReadFile(kData + "template_goldens.json"));
  ASSERT_TRUE(goldens.ok()) << goldens.status().message();
  std::map<std::string, int> rendered_by;
  std::map<std::string, std::shared_ptr<const ChatTemplate>> compiled_by;
  for (const Json& golden : goldens->Find("cases")->items()) {
    const std::string name = golden.Find("template")->string();
    auto& compiled = compiled_by[name];
    if (!compiled)
      compiled = Compiled(ReadFile(kData + "templates/" + name + ".jinja"),
                          Strings(*golden.Find("special_tokens")));
    const Result<std::string> text =
        compiled->Render(Messages(*golden.Find("messages")), *golden.Find("kwargs"),
                         golden.Find("add_generation_prompt")->boolean());
    if (const Json* expected = golden.Find("rendered")) {
      ASSERT_TRUE(text.ok()) << golden.Dump() << "\n" << text.status().message();
      EXPECT_EQ(*text, expected->string()) << golden.Dump();
      ++rendered_by[name];
    } else {
      EXPECT_EQ(text.status().code(), Code::kInvalidArgument) << golden.Dump();
    }
  }
  for (const char* name : {"chatml", "features", "gemma3", "gemma4", "lfm2", "qwen2_5",
                           "qwen2_5_coder", "qwen3", "qwen3_5_nothink", "qwen3_5_think", "smollm2"})
    EXPECT_GE(rendered_by[name], 15) << name;
}

constexpr std::string_view kRoles[] = {"system", "user"};

// Contents that templates treat in ways of their own, and what surrounds them.
std::string RandomContent(std::mt19937& random) {
  static const std::string kPieces[] = {"word",
                                        " ",
                                        "\n",
                                        "\t",
                                        "  \r\n",
                                        "<|im_end|>",
                                        "<think>",
                                        "</think>",
                                        "{{",
                                        "}}",
                                        "{%",
                                        "<&>",
                                        "'\"\\",
                                        "<tool_response>",
                                        "</tool_response>",
                                        "\u00e9",
                                        "\u4e2d",
                                        "\u00a0",
                                        "\u2003",
                                        "\u0085",
                                        "\x1c",
                                        "\U0001F600",
                                        "0",
                                        "<end_of_turn>"};
  std::string content;
  for (size_t i = random() % 6; i > 0; --i) content += kPieces[random() % std::size(kPieces)];
  if (random() % 20 == 0) content += std::string(20000, 'x') + content;
  return content;
}

TEST(ChatTemplate, AFrameThatFitsIsWhatTheTemplateRenders) {
  const Result<Json> goldens = Json::Parse(ReadFile(kData + "template_goldens.json"));
  ASSERT_TRUE(goldens.ok());
  std::map<std::string, std::map<std::string, std::string>> special_tokens;
  for (const Json& golden : goldens->Find("cases")->items())
    special_tokens[golden.Find("template")->string()] = Strings(*golden.Find("special_tokens"));
  const Json kwargs = *Json::Parse(R"({"enable_thinking": false})");
  std::mt19937 random(11);
  for (const char* name : {"chatml", "gemma3", "gemma4", "lfm2", "qwen2_5", "qwen2_5_coder",
                           "qwen3", "qwen3_5_nothink", "qwen3_5_think", "smollm2"}) {
    const auto compiled =
        Compiled(ReadFile(kData + "templates/" + name + ".jinja"), special_tokens[name]);
    for (const size_t messages : {1u, 2u}) {
      const auto roles = std::span(kRoles).last(messages);
      const std::optional<PromptFrame> frame = compiled->FindFrame(roles, kwargs);
      ASSERT_TRUE(frame) << name;
      int fitted = 0;
      for (int i = 0; i < 300; ++i) {
        std::vector<ChatMessage> chat;
        for (const std::string_view role : roles)
          chat.push_back({std::string(role), RandomContent(random)});
        std::vector<std::string_view> contents;
        for (const ChatMessage& message : chat) contents.push_back(message.content);
        if (!frame->Fits(contents)) continue;
        ++fitted;
        std::string filled;
        frame->AppendHead(contents, filled);
        filled.append(contents.back()).append(frame->tail());
        const Result<std::string> rendered = compiled->Render(chat, kwargs, true);
        ASSERT_TRUE(rendered.ok()) << rendered.status().message();
        ASSERT_EQ(*rendered, filled) << name;
      }
      EXPECT_GE(fitted, 30) << name << ": hardly any content fits";
    }
  }
}

TEST(ChatTemplate, HasNoFrameWhereARenderingMayDependOnMoreThanIsFollowed) {
  const auto frame_of = [](const std::string& text, const Json& kwargs = Json()) {
    return Compiled(text)->FindFrame(std::span(kRoles).last(1), kwargs);
  };
  const std::string content = "{{ messages[0].content }}";
  ASSERT_TRUE(frame_of("a" + content + "b"));
  for (const char* depends : {
           "{{ messages[0].content | upper }}",
           "{{ messages[0].content | length }}",
           "{{ messages[0].content.strip() }}",
           "{{ messages[0].content[0] }}",
           "{{ messages[0].content | tojson }}",
           "{{ messages | tojson }}",
           "{{ messages[0] }}",
           "{{ '%s' % messages[0].content }}",
           "{{ '{}'.format(messages[0].content) }}",
           "{{ [messages[0].content] | join }}",
           "{{ messages | map(attribute='content') | map('trim') | join }}",
           "{% for c in messages[0].content %}{{ c }}{% endfor %}",
           "{% if messages[0].content < 'm' %}x{% endif %}",
           "{% if messages[0].content | length > 3 %}x{% endif %}",
           "{% if messages[0].content == messages[0].role ~ messages[0].content %}x{% endif %}",
           "{% if {'k': 1}[messages[0].content] is defined %}x{% endif %}",
           "{% if messages[messages[0].content] is defined %}x{% endif %}",
           "{% if messages[0].content is upper %}x{% endif %}",
           "{% if messages[0].content in 'abc' %}x{% endif %}",
           "{% set x %}a{{ messages[0].content }}{% endset %}{{ x | trim }}",
           "{% macro m(c) %}a{{ c }}{% endmacro %}{{ m(messages[0].content) | upper }}",
           "{% filter upper %}{{ messages[0].content }}{% endfilter %}",
           "{{ (messages[0].content ~ 'x').split('y')[0] }}",
           "{{ (messages[0].content * 2) }}",
           "{{ strftime_now('%H:%M:%S') }}",
           "{{ [1, 2, 3] | random }}",
           "{{ lipsum() }}",
           "{{ raise_exception('never') }}",
       })
    EXPECT_FALSE(frame_of(std::string(depends) + content)) << depends;
  EXPECT_FALSE(frame_of("no content at all"));
  EXPECT_FALSE(frame_of(content + " and again " + content)) << "the content stands twice";
}

TEST(ChatTemplate, AFrameHoldsOnlyUnderTheConditionsThatTheTemplateAskedFor) {
  const std::string text =
      "{% set c = messages[0].content %}{% if c %}{% if c.startswith('<a>') or c.endswith('<z>') "
      "or 'mid' in c or c == 'whole' %}"
      "special{% else %}{{ c | trim }}{% endif %}{% endif %}";
  const auto compiled = Compiled(text);
  const auto frame = compiled->FindFrame(std::span(kRoles).last(1), Json());
  ASSERT_TRUE(frame);
  const auto fits = [&](std::string_view content) { return frame->Fits({&content, 1}); };
  EXPECT_TRUE(fits("plain text"));
  EXPECT_TRUE(fits("\u4e2d"));
  for (const char* content :
       {"", "<a>b", "b<z>", "a mid z", "whole", " left", "right\n", "\u00a0x", "x\u3000", "x\x1f"})
    EXPECT_FALSE(fits(content)) << content;
}

TEST(ChatTemplate, SaysWhereATemplateDoesNotCompile) {
  const auto compiled = ChatTemplate::Compile("line one\n{% if x %}\n", {});
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.status().code(), Code::kUnsupported);
  EXPECT_NE(compiled.status().message().find("line 2"), std::string::npos)
      << compiled.status().message();
}

TEST(ChatTemplate, SaysThatACheckpointHasNone) {
  const auto compiled = ChatTemplate::Compile("", {});
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.status().code(), Code::kUnsupported);
  EXPECT_NE(compiled.status().message().find("no chat template"), std::string::npos);
}

TEST(ChatTemplate, HandsOnTheTemplatesOwnWordsWhenItRefuses) {
  const Result<std::string> text = RenderUser("{{ raise_exception('roles must alternate') }}");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(text.status().message(), "roles must alternate");
}

TEST(ChatTemplate, AFailingExpressionIsAnErrorAndTheTemplateStaysUsable) {
  const auto compiled = Compiled("{{ messages[0].content + (1 if bad else '') }}");
  const Result<std::string> bad =
      compiled->Render({{"user", "x"}}, Json::Object({{"bad", Json::Bool(true)}}), true);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(bad.status().message().find("TypeError: "), 0u) << bad.status().message();
  const Result<std::string> good = compiled->Render({{"user", "x"}}, Json(), true);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, "x");
}

TEST(ChatTemplate, ArgumentsWinOverSpecialTokensOfTheSameName) {
  const auto compiled =
      Compiled("{{ bos_token }}|{{ eos_token }}", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  EXPECT_EQ(*compiled->Render({}, Json(), true), "<s>|</s>");
  EXPECT_EQ(*compiled->Render({}, Json::Object({{"bos_token", Json::String("mine")}}), true),
            "mine|</s>");
}

TEST(ChatTemplate, ContentIsNeverReadAsATemplate) {
  EXPECT_EQ(*RenderUser("{{ messages[0].content }}", "{{ 7 * 7 }} {% endif %} {# x #}"),
            "{{ 7 * 7 }} {% endif %} {# x #}");
}

TEST(ChatTemplate, ZeroBytesAndAllOfUnicodePassThrough) {
  const std::string content("a\0b é 한 😀 \u2028", 19);
  EXPECT_EQ(*RenderUser("{{ messages[0].content }}", content), content);
}

TEST(ChatTemplate, ALoneSurrogateThatATemplateMakesIsAnErrorNotACrash) {
  const Result<std::string> text = RenderUser("{{ '\\ud800' }}");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().code(), Code::kInvalidArgument);
}

TEST(ChatTemplate, TheSandboxKeepsTemplatesFromPythonFilesAndModules) {
  for (const char* hostile : {
           "{{ ''.__class__.__mro__[1].__subclasses__() }}",
           "{{ messages.__init__.__globals__ }}",
           "{{ raise_exception.__globals__['json'] }}",
           "{{ strftime_now.__globals__ }}",
           "{{ self.__init__.__globals__.__builtins__.open('/etc/passwd').read() }}",
           "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
           "{{ lipsum.__globals__['os'].system('id') }}",
           "{{ messages.append(1) }}",
           "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
           "{{ namespace(_x=1) }}",
           "{% include '/etc/passwd' %}",
           "{% import 'os' as os %}",
           "{{ ('{0.__class__.__base__}').format(1) }}",
           "{{ range(10000000) | list }}",
       }) {
    const auto compiled = ChatTemplate::Compile(hostile, {});
    if (!compiled.ok()) continue;
    const Result<std::string> text = (*compiled)->Render({{"user", "x"}}, Json(), true);
    // What the sandbox hides is undefined, which is an error or writes nothing.
    EXPECT_EQ(text.ok() ? *text : "", "") << hostile;
  }
}

TEST(ChatTemplate, NumbersOfAnyKindAreArgumentsOrErrorsButNeverCrashes) {
  const Json huge = *Json::Parse(R"({"n": 1e400, "i": -0, "b": 123456789012345678901234567890})");
  EXPECT_EQ(*RenderUser("{{ n }} {{ i }} {{ b }}", "", huge),
            "inf 0 123456789012345678901234567890");
  const Json endless = Json::Object({{"n", Json::Number(std::string(5000, '9'))}});
  EXPECT_EQ(RenderUser("{{ n }}", "", endless).status().code(), Code::kInvalidArgument);
}

TEST(ChatTemplate, RendersTheSameFromManyThreads) {
  const auto compiled = Compiled(ReadFile(kData + "templates/qwen3.jinja"));
  const Json kwargs = Json::Object({{"enable_thinking", Json::Bool(false)}});
  constexpr int kThreads = 8, kRenders = 200;
  std::vector<int> right(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRenders; ++i) {
        const std::string content = "thread " + std::to_string(t) + " round " + std::to_string(i);
        const Result<std::string> text = compiled->Render({{"user", content}}, kwargs, true);
        right[static_cast<size_t>(t)] +=
            text.ok() && *text == "<|im_start|>user\n" + content +
                                      "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(kThreads, kRenders));
}

int64_t ThreadCpuNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// The bound is ten times what this takes on a 2 GHz core: it finds a template that is compiled anew for every prompt
// (10 ms and more), not a slow day. Processor time, because the machine may be busy. The figures go to the log.
TEST(ChatTemplate, ARenderCompilesNothing) {
  const Json kwargs = Json::Object({{"enable_thinking", Json::Bool(false)}});
  for (const char* name : {"chatml", "qwen2_5_coder", "qwen3", "qwen3_5_think", "gemma4"}) {
    const auto compiled = Compiled(ReadFile(kData + "templates/" + name + ".jinja"));
    const std::vector<ChatMessage> messages = {{"user", std::string(1200, 'x')}};
    constexpr int kRenders = 300;
    const int64_t start = ThreadCpuNs();
    for (int i = 0; i < kRenders; ++i) ASSERT_TRUE(compiled->Render(messages, kwargs, true).ok());
    const double us = static_cast<double>(ThreadCpuNs() - start) / kRenders / 1000;
    printf("%-16s %6.1f us of processor time a render\n", name, us);
    EXPECT_LT(us, 2500) << name;
  }
}

}  // namespace
}  // namespace sysone
