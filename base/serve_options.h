// The options of `sysone serve`. The three programs parse the same command line (the router starts
// its children with its own arguments and a few internal flags behind them), so an option means the
// same everywhere and is described once, in base/serve_flags.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace sysone {

// Every field's default is the flag's default; 0 or "" means "decided later", as the comment tells.
struct ServeOptions {
  // Model
  std::string model = "qwen2.5-coder-1.5b";     // a name, a file, a folder or a hub id
  std::vector<std::string> served_model_names;  // what clients may call it; empty: its own name
  std::string dtype = "auto";                   // auto | int8 | fp8 | bfloat16 | float32
  int64_t max_model_len = 0;  // tokens of a prompt; 0: the model's, at most kMaxModelLenDefault
  std::string chat_template;  // file with a Jinja template; "": the model's own
  std::string default_chat_template_kwargs;  // JSON object; "": none

  // Device
  std::string device = "auto";          // auto | cpu | cuda
  double gpu_memory_utilization = 0.9;  // share of a GPU's memory to use at most
  bool enforce_eager = false;           // on GPUs: no pass is recorded and launched as a whole
  bool batch_invariant = false;         // on GPUs: a prompt's bits never depend on its company
  bool preload_autotune = false;        // on GPUs: algorithms are tried before the first request

  // HTTP
  std::string host = "0.0.0.0";              // address or name to listen on
  int port = 8000;                           // 0: any free port, printed when ready
  std::vector<std::string> api_keys;         // any of them is accepted; empty: no key is asked for
  std::vector<std::string> allowed_origins;  // CORS; empty: closed
  std::vector<std::string> allowed_methods;  // CORS; empty: GET, POST
  std::vector<std::string> allowed_headers;  // CORS; empty: Content-Type, Authorization
  bool allow_credentials = false;            // CORS
  int max_connections = 512;                 // open connections of one API server
  int64_t max_request_bytes = 8 * 1024 * 1024;  // of a body, before and after inflating
  double request_timeout_s = 60;                // from the request's arrival to its answer

  // Decisions
  int max_questions = 64;                // questions of one request
  std::string confidence = "typesafe";   // typesafe | vllm
  std::string response_fields = "vllm";  // vllm | typesafe
  bool diagnostics = false;              // diagnostics in every answer

  // Processes
  int api_server_count = 0;      // 0 on the command line becomes data_parallel_size
  int data_parallel_size = 1;    // worker groups, each with the whole model
  int tensor_parallel_size = 1;  // ranks of one group, each with a part of the model
  std::string mpi_hosts;         // "HOST:RANKS,…": machines of each group's ranks
  std::string mpi_hostfile;      // the same as a file; neither: this machine alone
  int threads = 0;  // compute threads of one rank; 0: the cores divided among all ranks
  std::string doorbell = "futex";  // futex | zeromq: how API servers wake an idle worker
  std::string instance_name;       // names the arena and the lock; "": "port-N"
  double ready_timeout_s = 1800;   // start to ready, all children
  double shutdown_timeout_s = 30;  // SIGTERM to SIGKILL; 0: nothing is waited for

  // Hosts
  int nnodes = 1;                     // machines on which this command runs at once
  int node_rank = 0;                  // which of them this one is
  std::string master_addr;            // where node 0 is
  int master_port = 29501;            // with nnodes above 1: of node 0's link
  int data_parallel_size_local = -1;  // of the groups, those on this host; -1: all
  bool headless = false;              // this host lends its groups to another host's router
  std::string router_address;         // headless: tcp://HOST:PORT of that router's link
  std::string
      data_parallel_address;  // the router's: where its link listens; headless: where the router is
  int data_parallel_rpc_port =
      29550;               // of the link; 0 at the router's: any free port, printed when ready
  std::string curve_keys;  // folder (link/link_keys.h)
  bool allow_unauthenticated_tcp = false;
  double link_timeout_s = 3;  // a host that is not heard of for this long is lost

  // Scheduling
  // Of one pass; half while several requests wait. Matrix products run at full rate from about a hundred on, and whoever
  // arrives waits for the pass in work.
  int64_t max_num_batched_tokens = 512;
  int max_num_seqs = 256;                     // questions of one pass
  int max_num_queued_reqs = 1024;             // accepted and unanswered requests of the instance
  int64_t max_num_queued_tokens = 2'000'000;  // their tokens
  // Bytes of one worker group. 0: kKvCacheMemoryDefault, or what the longest prompt needs if that is more; on GPUs all that is left.
  int64_t kv_cache_memory = 0;
  bool enable_prefix_caching = true;  // keep what was computed for requests to come
  int64_t shm_arena_mb = 48;  // MiB of payload in shared memory; fits the 64 MB of containers

  // Output
  std::string log_level = "info";     // debug | info | warning | error
  bool disable_log_requests = false;  // no line a request

  // Accepted for compatibility, without effect (a warning says so)
  bool disable_cascade_attn = false;

  std::string config_file;  // --config; its values are already merged here

  // Internal: given by the router to its children, or by tests. Hidden in --help.
  int role_index = -1;        // API server: its number; worker, intake: its group's number
  int listen_fd = -1;         // API server, stand-in: the inherited listening socket
  std::string run_dir;        // folder of this instance's sockets and lock, owned by the router
  std::string model_path;     // the resolved file or folder
  std::string program_dir;    // where sysone-api-server and sysone-worker lie; "": beside sysone
  std::string tuning_dir;     // of files of choices that a worker reads and writes; "": none
  bool preload_only = false;  // a worker ends when it is ready to serve
  std::string device_file = "/dev/nvidiactl";  // is there where the driver of NVIDIA GPUs is
  double stuck_after_s = 60;  // a child without a heartbeat for this long is killed and replaced
};

// Of --data-parallel-size, the groups of this host and those of others.
int LocalGroups(const ServeOptions& options);
int RemoteGroups(const ServeOptions& options);

// Longest prompt when --max-model-len is not given: KV memory for a model's full window is rarely
// wanted.
inline constexpr int64_t kMaxModelLenDefault = 8192;
// Keys and values of some thousand tokens of a model of 1.5 billion weights: dozens of clients and the states that they ask
// about again.
inline constexpr int64_t kKvCacheMemoryDefault = int64_t{384} << 20;

struct ParsedOptions {
  ServeOptions options;
  std::string text;  // not empty: --help or --version was asked for; print it and exit 0
};

// `args`: the arguments behind the program's name (and behind `serve`). `program` stands in the
// help's first line. Reads the file of --config; what stands on the command line wins over it.
// Underscores in flag names count as dashes; "--no-" before
// a switch's name turns it off. kInvalidArgument: one line that names the flag and,
// for an unknown one, the nearest that exists.
Result<ParsedOptions> ParseServeOptions(const std::string& program,
                                        std::span<const std::string> args);

// Takes the first non-empty key of the environment (values may be null) when no --api-key was
// given. For main only: UseApiKeyFromEnvironment(options, {getenv("SYSONE_API_KEY"),
// getenv("VLLM_API_KEY")}).
void UseApiKeyFromEnvironment(ServeOptions& options, std::initializer_list<const char*> values);

// options.log_level, which parsing has checked.
LogLevel LogLevelOf(const ServeOptions& options);

// "0.1.0"
const char* SysoneVersion();

}  // namespace sysone
