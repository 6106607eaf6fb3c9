// The steps before anything runs: children's command lines, the listening socket, memory, starting a program.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "router/child_args.h"
#include "router/child_process.h"
#include "router/listener.h"
#include "router/model_fetch.h"
#include "router/preflight.h"
#include "router/router.h"
#include "tests/model/temp_folder.h"

namespace sysone {
namespace {

using Args = std::vector<std::string>;
constexpr char kTinyModel[] = SYSONE_SOURCE_DIR "/tests/golden/qwen3";

InstanceFacts FactsFor(const Args& user_args) {
  InstanceFacts facts;
  facts.user_args = user_args;
  facts.options = ParseServeOptions("sysone serve", user_args)->options;
  facts.instance = "name";
  facts.run_dir = "/run/x";
  facts.model_path = "/models/m.gguf";
  facts.served_name = "m";
  facts.program_dir = "/bin";
  facts.cores = 8;
  return facts;
}

TEST(ChildArgs, ParseBackToTheUsersOptionsAndTheRoutersFacts) {
  const InstanceFacts facts =
      FactsFor({"smollm2-135m", "-dp", "3", "--instance-name", "mine", "--api-key", "a", "b"});
  const auto worker = ParseServeOptions("w", ChildArgs(facts, ProcessRole::kWorker, 2));
  ASSERT_TRUE(worker.ok()) << worker.status().message();
  EXPECT_EQ(worker->options.model, "smollm2-135m");
  EXPECT_EQ(worker->options.api_keys, (Args{"a", "b"}));
  EXPECT_EQ(worker->options.instance_name, "name");
  EXPECT_EQ(worker->options.run_dir, "/run/x");
  EXPECT_EQ(worker->options.model_path, "/models/m.gguf");
  EXPECT_EQ(worker->options.served_model_names, Args{"m"});
  EXPECT_EQ(worker->options.role_index, 2);
  EXPECT_EQ(worker->options.threads, 8 / 3);
  EXPECT_EQ(worker->options.listen_fd, -1);
  const auto server = ParseServeOptions("s", ChildArgs(facts, ProcessRole::kApiServer, 1));
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(server->options.listen_fd, kInheritedFd);
  EXPECT_EQ(server->options.role_index, 1);
}

TEST(ChildArgs, KeepWhatTheUserChose) {
  const InstanceFacts facts = FactsFor({"--served-model-name", "x", "y", "--threads", "5"});
  const auto worker = ParseServeOptions("w", ChildArgs(facts, ProcessRole::kWorker, 0));
  ASSERT_TRUE(worker.ok());
  EXPECT_EQ(worker->options.served_model_names, (Args{"x", "y"}));
  EXPECT_EQ(worker->options.threads, 5);
}

TEST(ChildArgs, AGroupOfSeveralRanksIsOneMpirunWithTheWorkerBehindItsOwnFlags) {
  const InstanceFacts facts = FactsFor({"smollm2-135m", "-tp", "2", "-dp", "2"});
  EXPECT_EQ(ChildProgram(facts, ProcessRole::kWorker), "mpirun");
  EXPECT_EQ(ChildProgram(facts, ProcessRole::kApiServer), "/bin/sysone-api-server");
  const Args args = ChildArgs(facts, ProcessRole::kWorker, 1);
  const auto program = std::find(args.begin(), args.end(), "/bin/sysone-worker");
  ASSERT_NE(program, args.end());
  const auto ranks = std::find(args.begin(), program, "-np");
  ASSERT_LT(ranks + 1, program);
  EXPECT_EQ(ranks[1], "2");
  const auto worker = ParseServeOptions("w", Args(program + 1, args.end()));
  ASSERT_TRUE(worker.ok()) << worker.status().message();
  EXPECT_EQ(worker->options.tensor_parallel_size, 2);
  EXPECT_EQ(worker->options.role_index, 1);
  EXPECT_EQ(worker->options.threads, 8 / 4) << "two groups of two ranks share the cores";
  // An API server is started as always.
  EXPECT_EQ(ChildArgs(facts, ProcessRole::kApiServer, 0)[0], "smollm2-135m");
}

TEST(ChildArgs, AnInstanceOnGpusHasAnotherWorker) {
  InstanceFacts facts = FactsFor({"smollm2-135m", "--device", "cuda"});
  facts.on_gpus = true;
  EXPECT_EQ(ChildProgram(facts, ProcessRole::kWorker), "/bin/sysone-worker-cuda");
  EXPECT_EQ(ChildProgram(facts, ProcessRole::kApiServer), "/bin/sysone-api-server");
  facts = FactsFor({"smollm2-135m", "-tp", "2"});
  facts.on_gpus = true;
  const Args args = ChildArgs(facts, ProcessRole::kWorker, 0);
  EXPECT_NE(std::find(args.begin(), args.end(), "/bin/sysone-worker-cuda"), args.end());
}

TEST(ParentOf, IsThisProcessForItsChildAndNobodyForNobody) {
  const auto pid = StartChild({"/bin/sleep", {"100"}, -1, -1});
  ASSERT_TRUE(pid.ok());
  EXPECT_EQ(ParentOf(*pid), getpid());
  kill(*pid, SIGKILL);
  waitpid(*pid, nullptr, 0);
  EXPECT_EQ(ParentOf(*pid), 0);
}

TEST(ChildArgs, EveryWorkerGetsAThread) {
  InstanceFacts facts = FactsFor({"-dp", "4"});
  facts.cores = 2;
  EXPECT_EQ(ParseServeOptions("w", ChildArgs(facts, ProcessRole::kWorker, 0))->options.threads, 1);
}

TEST(Listener, FindsAFreePortAndSaysWhere) {
  const auto listener = Listener::Bind("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  EXPECT_GT(listener->port(), 0);
  EXPECT_EQ(listener->url(), "http://127.0.0.1:" + std::to_string(listener->port()));
  EXPECT_TRUE(fcntl(listener->fd(), F_GETFL) & O_NONBLOCK);
  EXPECT_TRUE(fcntl(listener->fd(), F_GETFD) & FD_CLOEXEC);
  const auto everywhere = Listener::Bind("0.0.0.0", 0);
  ASSERT_TRUE(everywhere.ok());
  EXPECT_TRUE(everywhere->url().starts_with("http://127.0.0.1:"));
}

TEST(Listener, APortInUseIsNamed) {
  const auto first = Listener::Bind("127.0.0.1", 0);
  ASSERT_TRUE(first.ok());
  const auto second = Listener::Bind("127.0.0.1", first->port());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_NE(second.status().message().find("port " + std::to_string(first->port())),
            std::string::npos);
}

TEST(Listener, AForeignListenerThatSharesItsPortIsNoticed) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  ASSERT_EQ(listen(fd, 1), 0);  // binds to any free port
  const auto free = Listener::Bind("127.0.0.1", 0);
  ASSERT_TRUE(free.ok());
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const int port = (reinterpret_cast<unsigned char*>(&address)[2] << 8) +
                   reinterpret_cast<unsigned char*>(&address)[3];
  EXPECT_FALSE(Listener::Bind("127.0.0.1", port).ok());
  close(fd);
}

TEST(Listener, AnUnknownHostIsNamed) {
  const auto listener = Listener::Bind("no such host", 0);
  ASSERT_FALSE(listener.ok());
  EXPECT_NE(listener.status().message().find("'no such host'"), std::string::npos);
}

int WaitStatusOf(const ChildCommand& command) {
  const auto pid = StartChild(command);
  EXPECT_TRUE(pid.ok()) << pid.status().message();
  int wait_status = -1;
  if (!pid.ok()) return -1;
  EXPECT_EQ(waitpid(*pid, &wait_status, 0), *pid);
  return wait_status;
}

TEST(ChildProcess, InheritsTheOneDescriptorAndNothingElse) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);  // not close-on-exec, on purpose
  // Far from what a shell opens for itself.
  const int leaked = fcntl(fds[0], F_DUPFD, 100);
  const auto has = [](int fd) { return "[ -e /proc/self/fd/" + std::to_string(fd) + " ]"; };
  EXPECT_EQ(WaitStatusOf({"/bin/sh", {"-c", has(kInheritedFd)}, fds[1], -1}), 0);
  EXPECT_NE(WaitStatusOf({"/bin/sh", {"-c", has(leaked)}, fds[1], -1}), 0);
  EXPECT_NE(WaitStatusOf({"/bin/sh", {"-c", has(kInheritedFd)}, -1, -1}), 0);
  EXPECT_NE(WaitStatusOf({"/bin/sh", {"-c", has(leaked)}, -1, -1}), 0);
  for (const int fd : {fds[0], fds[1], leaked}) close(fd);
}

TEST(ChildProcess, RunsInAGroupOfItsOwnWithDefaultSignals) {
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  const int wait_status = WaitStatusOf({"/bin/sh", {"-c", "kill -TERM -$$"}, -1, -1});
  sigprocmask(SIG_SETMASK, &before, nullptr);
  EXPECT_TRUE(WIFSIGNALED(wait_status));
  EXPECT_EQ(WTERMSIG(wait_status), SIGTERM);
  EXPECT_EQ(ExitText(wait_status), "signal 15 (Terminated)");
}

TEST(ChildProcess, SaysHowItEnded) {
  const int wait_status = WaitStatusOf({"/bin/sh", {"-c", "exit 3"}, -1, -1});
  EXPECT_EQ(ExitText(wait_status), "exit status 3");
  EXPECT_TRUE(IsHopelessExit(wait_status));
  EXPECT_FALSE(IsHopelessExit(WaitStatusOf({"/bin/sh", {"-c", "exit 1"}, -1, -1})));
  EXPECT_FALSE(StartChild({"/no/such/program", {}, -1, -1}).ok());
}

class FetchModelTest : public testing::Test {
 protected:
  // A fetch script with this body.
  std::string Script(const std::string& body) {
    const std::string path = folder_.Write("fetch", "#!/bin/sh\n" + body);
    chmod(path.c_str(), 0700);
    return path;
  }
  TempFolder folder_;
  // Unblocked again behind each test.
  struct Mask {
    Mask() { sigprocmask(SIG_BLOCK, nullptr, &set); }
    ~Mask() { sigprocmask(SIG_SETMASK, &set, nullptr); }
    sigset_t set;
  } mask_;
  std::unique_ptr<SignalSource> signals_ = *SignalSource::Create();
};

TEST_F(FetchModelTest, TakesThePathThatTheScriptPrints) {
  const auto path = FetchModel(Script("echo progress >&2; echo /models/$1.gguf\n"), "m", *signals_);
  ASSERT_TRUE(path.ok()) << path.status().message();
  EXPECT_EQ(*path, "/models/m.gguf");
}

TEST_F(FetchModelTest, AFailureIsAnError) {
  EXPECT_EQ(FetchModel(Script("exit 1\n"), "m", *signals_).status().message(),
            "cannot fetch 'm' (exit status 1)");
  EXPECT_EQ(FetchModel(Script("true\n"), "m", *signals_).status().code(), Code::kInternal);
  EXPECT_EQ(FetchModel("/no/such/script", "m", *signals_).status().code(), Code::kNotFound);
}

TEST_F(FetchModelTest, ASignalEndsTheScriptToo) {
  // The signal is pending before the script has a chance to end by itself.
  kill(getpid(), SIGTERM);
  EXPECT_EQ(FetchModel(Script("exec sleep 1000\n"), "m", *signals_).status().code(),
            Code::kCancelled);
}

int64_t WeightBytesOf(const std::string& dtype) {
  const auto facts = InspectModel(kTinyModel, dtype);
  EXPECT_TRUE(facts.ok()) << facts.status().message();
  return facts.ok() ? facts->weight_bytes : 0;
}

TEST(Preflight, CountsTheWeightsInTheChosenType) {
  const int64_t half = WeightBytesOf("bfloat16");
  EXPECT_GT(half, 0);
  EXPECT_EQ(WeightBytesOf("float32"), 2 * half);
  EXPECT_LT(WeightBytesOf("int8"), half);
  EXPECT_GT(WeightBytesOf("int8"), half / 2);  // the embedding stays
  EXPECT_EQ(WeightBytesOf("auto"), WeightBytesOf("int8"));
}

TEST(Preflight, TooLittleMemorySaysWhatIsNeeded) {
  ServeOptions options;
  options.data_parallel_size = 2;
  options.api_server_count = 1;
  constexpr int64_t kGiB = int64_t{1} << 30;
  EXPECT_TRUE(CheckMemory(3 * kGiB, options, 1, 8 * kGiB).ok());
  EXPECT_TRUE(CheckMemory(3 * kGiB, options, 1, 0).ok());
  EXPECT_TRUE(CheckMemory(3 * kGiB, options, 1, 8 * kGiB).ok());
  options.tensor_parallel_size = 2;
  EXPECT_TRUE(CheckMemory(3 * kGiB, options, 1, 4 * kGiB).ok()) << "half of it is elsewhere";
  EXPECT_FALSE(CheckMemory(3 * kGiB, options, 2, 4 * kGiB).ok());
  options.tensor_parallel_size = 1;
  const Status status = CheckMemory(3 * kGiB, options, 1, 5 * kGiB);
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_NE(status.message().find("6.9 GiB are needed"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("5.0 GiB are available"), std::string::npos) << status.message();
}

TEST(ServeEnvironment, FollowsTheCacheVariables) {
  const auto from = [](std::vector<std::pair<std::string, std::string>> set) {
    return ReadServeEnvironment([set](const char* name) -> std::string {
      for (const auto& [key, value] : set)
        if (key == name) return value;
      return "";
    });
  };
  const ServeEnvironment plain = from({{"HOME", "/h"}});
  EXPECT_EQ(plain.caches.sysone_models, "/h/.cache/sysone/models");
  EXPECT_EQ(plain.caches.hub, "/h/.cache/huggingface/hub");
  const ServeEnvironment xdg = from({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/c"}, {"HF_HOME", "/hf"}});
  EXPECT_EQ(xdg.caches.sysone_models, "/c/sysone/models");
  EXPECT_EQ(xdg.caches.hub, "/hf/hub");
  const ServeEnvironment direct =
      from({{"SYSONE_CACHE", "/s"}, {"HF_HUB_CACHE", "/hub"}, {"HF_HOME", "/hf"}});
  EXPECT_EQ(direct.caches.sysone_models, "/s/models");
  EXPECT_EQ(direct.caches.hub, "/hub");
}

}  // namespace
}  // namespace sysone
