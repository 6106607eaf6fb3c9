// SPDX-License-Identifier: Apache-2.0
#include "base/serve_options.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "base/serve_flags.h"

namespace sysone {
namespace {

using Args = std::vector<std::string>;

ServeOptions Parsed(const Args& args) {
  auto parsed = ParseServeOptions("sysone serve", args);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() ? parsed->options : ServeOptions{};
}

std::string ErrorOf(const Args& args) {
  const auto parsed = ParseServeOptions("sysone serve", args);
  EXPECT_FALSE(parsed.ok());
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.status().message().find('\n'), std::string::npos) << "an error is one line";
  return parsed.status().message();
}

// A file with `text`, removed at the end of the test.
class TempFile {
 public:
  explicit TempFile(const std::string& text) {
    const int fd = mkstemp(path_.data());
    EXPECT_GE(fd, 0);
    EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(fd);
  }
  ~TempFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = testing::TempDir() + "serve_options_XXXXXX";
};

TEST(ServeOptions, HaveDefaultsWithoutArguments) {
  const ServeOptions options = Parsed({});
  EXPECT_EQ(options.model, "qwen2.5-coder-1.5b");
  EXPECT_EQ(options.host, "0.0.0.0");
  EXPECT_EQ(options.port, 8000);
  EXPECT_EQ(options.api_server_count, 1);
  EXPECT_EQ(options.max_questions, 64);
  EXPECT_EQ(options.max_request_bytes, 8388608);
  EXPECT_EQ(options.request_timeout_s, 60);
  EXPECT_EQ(options.listen_fd, -1);
}

TEST(ServeOptions, TakeTheModelAsArgumentOrFlag) {
  EXPECT_EQ(Parsed({"smollm2-135m", "--port", "1"}).model, "smollm2-135m");
  EXPECT_EQ(Parsed({"--port", "1", "smollm2-135m"}).model, "smollm2-135m");
  EXPECT_EQ(Parsed({"--model", "Qwen/Qwen3-0.6B"}).model, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(ErrorOf({"a", "b"}), "unexpected argument 'b': the model is already 'a'");
}

TEST(ServeOptions, AcceptEverySpellingOfAFlag) {
  EXPECT_EQ(Parsed({"--data-parallel-size", "3"}).data_parallel_size, 3);
  EXPECT_EQ(Parsed({"--data-parallel-size=3"}).data_parallel_size, 3);
  EXPECT_EQ(Parsed({"--data_parallel_size=3"}).data_parallel_size, 3);
  EXPECT_EQ(Parsed({"-dp", "3"}).data_parallel_size, 3);
  EXPECT_EQ(Parsed({"-dp=3"}).data_parallel_size, 3);
  EXPECT_EQ(Parsed({"-asc", "2"}).api_server_count, 2);
  EXPECT_EQ(Parsed({"-tp", "2"}).tensor_parallel_size, 2);
  EXPECT_EQ(Parsed({"--role-index", "-1"}).role_index, -1);
}

TEST(ServeOptions, OfAPlainFlagTheLastOneCountsAndListsCollect) {
  EXPECT_EQ(Parsed({"--port", "1", "--port", "2"}).port, 2);
  EXPECT_EQ(Parsed({"--api-key", "a", "b", "--api-key=c"}).api_keys, (Args{"a", "b", "c"}));
  EXPECT_EQ(Parsed({"m", "--served-model-name", "a", "b"}).served_model_names, (Args{"a", "b"}));
}

TEST(ServeOptions, ListsMayBeJson) {
  EXPECT_EQ(Parsed({"--allowed-origins", R"(["https://a", "https://b"])"}).allowed_origins,
            (Args{"https://a", "https://b"}));
  EXPECT_EQ(Parsed({R"(--allowed-origins=["*"])"}).allowed_origins, Args{"*"});
  EXPECT_EQ(ErrorOf({"--allowed-origins", "[1]"}),
            "--allowed-origins: a JSON list here holds strings only");
  EXPECT_EQ(ErrorOf({"--allowed-origins", "[*]"}), "--allowed-origins: '[*]' is not a JSON list");
}

TEST(ServeOptions, AnUnknownFlagNamesTheNearest) {
  EXPECT_EQ(ErrorOf({"--prot", "1"}), "unknown flag --prot; did you mean --port?");
  EXPECT_EQ(ErrorOf({"--max-num-seq=1"}),
            "unknown flag --max-num-seq; did you mean --max-num-seqs?");
  EXPECT_EQ(ErrorOf({"--shutdown"}), "unknown flag --shutdown; did you mean --shutdown-timeout?");
  EXPECT_EQ(ErrorOf({"--zzzzzzzzzzzz"}), "unknown flag --zzzzzzzzzzzz; --help shows all flags");
  EXPECT_EQ(ErrorOf({"-x"}), "unknown flag -x; --help shows all flags");
}

TEST(ServeOptions, WrongValuesAreNamed) {
  EXPECT_EQ(ErrorOf({"--port", "65536"}), "--port: '65536' is not a whole number from 0 to 65535");
  EXPECT_EQ(ErrorOf({"--port", "80a"}), "--port: '80a' is not a whole number from 0 to 65535");
  EXPECT_EQ(ErrorOf({"--port=99999999999999999999"}),
            "--port: '99999999999999999999' is not a whole number from 0 to 65535");
  EXPECT_EQ(ErrorOf({"--port"}), "--port: needs a value");
  EXPECT_EQ(ErrorOf({"--port", "--host", "x"}), "--port: needs a value");
  EXPECT_EQ(ErrorOf({"--api-key"}), "--api-key: needs a value");
  EXPECT_EQ(ErrorOf({"--request-timeout", "nan"}),
            "--request-timeout: 'nan' is not a number from 0.001 to 86400");
  EXPECT_EQ(ErrorOf({"--dtype", "int4"}),
            "--dtype: 'int4' is none of auto|int8|fp8|bfloat16|float32");
  EXPECT_EQ(ErrorOf({"--dtype", "bfloat16|float32"}),
            "--dtype: 'bfloat16|float32' is none of auto|int8|fp8|bfloat16|float32");
  EXPECT_EQ(ErrorOf({"--device", "tpu"}), "--device: 'tpu' is none of auto|cpu|cuda");
  for (const char* share : {"0", "1.01", "90", "nan"})
    EXPECT_EQ(
        ErrorOf({"--gpu-memory-utilization", share}),
        "--gpu-memory-utilization: '" + std::string(share) + "' is not a number from 0.01 to 1");
  EXPECT_EQ(Parsed({"--gpu-memory-utilization", "0.5"}).gpu_memory_utilization, 0.5);
  EXPECT_EQ(ErrorOf({"--diagnostics=yes"}), "--diagnostics: is a switch: true or false, not 'yes'");
}

TEST(ServeOptions, RulesBetweenFlagsAreChecked) {
  EXPECT_NE(ErrorOf({"--allow-credentials", "--allowed-origins", "*"}).find("--allowed-origins"),
            std::string::npos);
  EXPECT_NE(ErrorOf({"--instance-name", "a/b"}).find("--instance-name"), std::string::npos);
  EXPECT_NE(ErrorOf({"--default-chat-template-kwargs", "[]"}).find("not a JSON object"),
            std::string::npos);
  EXPECT_NE(ErrorOf({"--api-key", ""}).find("a key is empty"), std::string::npos);
  EXPECT_EQ(ErrorOf({"--dtype", "fp8", "--device", "cpu"}),
            "--dtype fp8 is for GPUs and does not go with --device cpu");
  EXPECT_EQ(Parsed({"--dtype", "fp8", "--device", "cuda"}).dtype, "fp8");
  EXPECT_EQ(Parsed({"-dp", "3"}).api_server_count, 3);
  EXPECT_EQ(Parsed({"-dp", "3", "-asc", "2"}).api_server_count, 2);
}

TEST(ServeOptions, AConfigFileGivesWhatTheCommandLineDoesNot) {
  const TempFile file(
      "model: smollm2-135m\nport: 1234\nmax_questions: 5\ndiagnostics: true\napi-key: [a, b]\n");
  const ServeOptions options = Parsed({"--config", file.path(), "--port=99", "--api-key", "c"});
  EXPECT_EQ(options.model, "smollm2-135m");
  EXPECT_EQ(options.port, 99);
  EXPECT_EQ(options.max_questions, 5);
  EXPECT_TRUE(options.diagnostics);
  EXPECT_EQ(options.api_keys, Args{"c"});
  EXPECT_EQ(Parsed({"other", "--config", file.path()}).model, "other");
  EXPECT_FALSE(Parsed({"--config", file.path(), "--diagnostics=false"}).diagnostics);
}

TEST(ServeOptions, AWrongConfigFileIsNamedWithItsLine) {
  EXPECT_EQ(ErrorOf({"--config", "/does/not/exist"}), "--config: cannot read '/does/not/exist'");
  const TempFile unknown("port: 1\nprot: 2\n");
  EXPECT_EQ(ErrorOf({"--config", unknown.path()}),
            "--config: " + unknown.path() + ": line 2: unknown flag --prot; did you mean --port?");
  const TempFile hidden("listen-fd: 3\n");
  EXPECT_NE(ErrorOf({"--config", hidden.path()}).find("unknown flag --listen-fd"),
            std::string::npos);
  const TempFile list("port: [1, 2]\n");
  EXPECT_NE(ErrorOf({"--config", list.path()}).find("takes one value"), std::string::npos);
}

TEST(ServeOptions, TheEnvironmentsKeyCountsOnlyWithoutTheFlag) {
  ServeOptions options;
  UseApiKeyFromEnvironment(options, {nullptr, ""});
  EXPECT_TRUE(options.api_keys.empty());
  UseApiKeyFromEnvironment(options, {"", "second"});
  EXPECT_EQ(options.api_keys, Args{"second"});
  UseApiKeyFromEnvironment(options, {"third"});
  EXPECT_EQ(options.api_keys, Args{"second"});
}

TEST(ServeOptions, HelpAndVersionAreTextAndNeedNothingElse) {
  const auto help = ParseServeOptions("sysone-worker", Args{"--help"});
  ASSERT_TRUE(help.ok());
  EXPECT_TRUE(help->text.starts_with("Usage: sysone-worker "));
  const auto version = ParseServeOptions("sysone serve", Args{"--version"});
  ASSERT_TRUE(version.ok());
  EXPECT_EQ(version->text, std::string("sysone ") + SysoneVersion() + "\n");
}

TEST(ServeFlags, EveryVisibleFlagStandsOnceInHelpAndInMarkdown) {
  const std::string help = ServeHelpText("sysone serve");
  const std::string markdown = ServeFlagsMarkdown();
  std::set<std::string> names;
  for (const ServeFlag& flag : ServeFlags()) {
    const std::string name(LongName(flag));
    EXPECT_TRUE(names.insert(name).second) << name << " stands twice";
    EXPECT_EQ(FindServeFlag(name), &flag);
    EXPECT_FALSE(flag.help.empty()) << name;
    EXPECT_EQ(IsSwitch(flag), flag.value.empty()) << name;
    const bool in_help =
        help.find("  " + name) != std::string::npos || help.find(", " + name) != std::string::npos;
    EXPECT_EQ(in_help, !flag.group.empty()) << name;
    EXPECT_EQ(markdown.find("`" + name) != std::string::npos, !flag.group.empty()) << name;
  }
  EXPECT_NE(markdown.find("`-tp`, `--tensor-parallel-size N`"), std::string::npos);
  EXPECT_NE(markdown.find("auto\\|int8"), std::string::npos);
}

TEST(ServeFlags, EveryDefaultPassesItsOwnCheck) {
  for (const ServeFlag& flag : ServeFlags()) {
    const ServeOptions defaults;
    std::string value;
    if (const auto* number = std::get_if<int ServeOptions::*>(&flag.member))
      value = std::to_string(defaults.*(*number));
    if (const auto* number = std::get_if<int64_t ServeOptions::*>(&flag.member))
      value = std::to_string(defaults.*(*number));
    if (const auto* number = std::get_if<double ServeOptions::*>(&flag.member))
      value = std::to_string(defaults.*(*number));
    if (value.empty()) continue;
    const auto parsed =
        ParseServeOptions("sysone serve", Args{std::string(LongName(flag)) + "=" + value});
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  }
}

TEST(ServeOptions, GroupsOfOtherHostsAreThoseThatAreNotLocal) {
  const ServeOptions plain = Parsed({"-dp", "3"});
  EXPECT_EQ(LocalGroups(plain), 3);
  EXPECT_EQ(RemoteGroups(plain), 0);
  const ServeOptions router = Parsed({"-dp", "3", "-dpl", "1", "--curve-keys", "keys"});
  EXPECT_EQ(LocalGroups(router), 1);
  EXPECT_EQ(RemoteGroups(router), 2);
  EXPECT_EQ(router.data_parallel_rpc_port, 29550);
  EXPECT_EQ(LocalGroups(Parsed({"-dpl", "0", "--allow-unauthenticated-tcp"})), 0);
  EXPECT_NE(ErrorOf({"-dp", "2", "-dpl", "3", "--curve-keys", "k"}).find("is more than"),
            std::string::npos);
}

TEST(ServeOptions, AHeadlessHostNeedsTheAddressOfItsRouter) {
  const ServeOptions named =
      Parsed({"--headless", "--router-address", "tcp://node1:29550", "--curve-keys", "keys"});
  EXPECT_EQ(named.router_address, "tcp://node1:29550");
  EXPECT_EQ(RemoteGroups(named), 0);
  // As vLLM's hosts are told.
  const ServeOptions as_vllm = Parsed({"--headless", "-dp", "4", "-dpl", "2", "-dpa", "node1",
                                       "-dpp", "13345", "--curve-keys", "keys"});
  EXPECT_EQ(as_vllm.router_address, "tcp://node1:13345");
  EXPECT_EQ(LocalGroups(as_vllm), 2);
  for (const char* address : {"", "node1:29550", "tcp://node1", "tcp://:1", "tcp://node1:0",
                              "tcp://node1:65536", "tcp://node1:1x"})
    EXPECT_NE(
        ErrorOf({"--headless", "--router-address=" + std::string(address), "--curve-keys", "k"})
            .find("--router-address tcp://HOST:PORT"),
        std::string::npos)
        << address;
  EXPECT_NE(ErrorOf({"--router-address", "tcp://node1:29550"}).find("--headless"),
            std::string::npos);
  EXPECT_NE(ErrorOf({"--headless", "-dpl", "0", "--router-address", "tcp://n:1"}).find("nothing"),
            std::string::npos);
}

TEST(ServeOptions, HostsAreNotLinkedWithoutKeysUnlessAFlagSaysSo) {
  const Args router{"-dp", "2", "-dpl", "1"};
  const Args host{"--headless", "--router-address", "tcp://node1:29550"};
  for (Args args : {router, host}) {
    EXPECT_NE(ErrorOf(args).find("sysone keys DIR"), std::string::npos);
    args.push_back("--allow-unauthenticated-tcp");
    EXPECT_TRUE(Parsed(args).allow_unauthenticated_tcp);
  }
}

}  // namespace
}  // namespace sysone
