// SPDX-License-Identifier: Apache-2.0
#include "base/serve_flags.h"

#include <algorithm>
#include <numeric>

namespace sysone {
namespace {

using O = ServeOptions;

constexpr std::string_view kModel = "Model";
constexpr std::string_view kDevice = "Device";
constexpr std::string_view kHttp = "HTTP";
constexpr std::string_view kDecisions = "Decisions";
constexpr std::string_view kProcesses = "Processes";
constexpr std::string_view kHosts = "Several hosts";
constexpr std::string_view kScheduling = "Scheduling and memory";
constexpr std::string_view kOutput = "Output and the rest";
constexpr std::string_view kHidden = "";

const ServeFlag kFlags[] = {
    {"--model", &O::model, kModel, "MODEL",
     "The same as the argument MODEL: a name, a GGUF file, a Hugging Face folder or a hub id."},
    {"--served-model-name", &O::served_model_names, kModel, "NAME...",
     "Names that clients may use for the model; the first one stands in answers. Default: the "
     "model's own name."},
    {"--dtype", &O::dtype, kModel, "auto|int8|fp8|bfloat16|float32",
     "Type of the weights and of their products. auto is int8 on CPUs with AVX2 or better, else "
     "float32, and bfloat16 on GPUs; fp8 is for GPUs alone; float32 is the slow reference."},
    {"--max-model-len", &O::max_model_len, kModel, "TOKENS",
     "Longest prompt that is accepted. 0: the model's own limit, at most 8192."},
    {"--chat-template", &O::chat_template, kModel, "FILE",
     "File with a Jinja chat template to use instead of the model's own."},
    {"--default-chat-template-kwargs", &O::default_chat_template_kwargs, kModel, "JSON",
     "Object with variables for the chat template; a request's chat_template_kwargs go over them."},

    {"--device", &O::device, kDevice, "auto|cpu|cuda",
     "What the ranks compute on. auto is cuda where sysone-worker-cuda lies beside sysone and the "
     "driver of NVIDIA GPUs is there, else cpu."},
    {"--gpu-memory-utilization", &O::gpu_memory_utilization, kDevice, "SHARE",
     "Share of each GPU's memory to use at most: weights and buffers come first, keys and values "
     "take what is left.",
     0.01, 1},
    {"--enforce-eager", &O::enforce_eager, kDevice, "",
     "On GPUs: launch every operation of a pass by itself instead of passes that were recorded as "
     "CUDA graphs. Slower; for finding faults."},
    {"--batch-invariant", &O::batch_invariant, kDevice, "",
     "On GPUs: a prompt's bits never depend on what else is in the pass. Slower; CPUs do so in any "
     "case."},
    {"--preload-autotune", &O::preload_autotune, kDevice, "",
     "On GPUs: before the first request, try several algorithms for every matrix product, keep the "
     "fastest and remember them for later starts. sysone preload does the same without serving."},

    {"--host", &O::host, kHttp, "ADDRESS",
     "Address to listen on. 0.0.0.0 is every IPv4 interface."},
    {"--port", &O::port, kHttp, "PORT", "Port to listen on. 0: any free port, printed when ready.",
     0, 65535},
    {"--api-key", &O::api_keys, kHttp, "KEY...",
     "Keys of which clients must send one as Bearer token. Also from SYSONE_API_KEY or "
     "VLLM_API_KEY."},
    {"--allowed-origins", &O::allowed_origins, kHttp, "ORIGIN...",
     "Origins that browsers may call from (CORS), as values or as one JSON list; \"*\" is any. "
     "Default: none."},
    {"--allowed-methods", &O::allowed_methods, kHttp, "METHOD...",
     "Methods that such pages may use. Default: GET and POST."},
    {"--allowed-headers", &O::allowed_headers, kHttp, "HEADER...",
     "Headers that such pages may send. Default: Content-Type and Authorization."},
    {"--allow-credentials", &O::allow_credentials, kHttp, "",
     "Let such pages send credentials; not together with the origin \"*\"."},
    {"--max-connections", &O::max_connections, kHttp, "N",
     "Open connections of one API server; the next one is answered 503.", 1, 65536},
    {"--max-request-bytes", &O::max_request_bytes, kHttp, "BYTES",
     "Largest request body, as sent and when inflated; a larger one is answered 413.", 1024,
     1 << 30},
    {"--request-timeout", &O::request_timeout_s, kHttp, "SECONDS",
     "Time from a request's arrival to its answer; later it is answered 504.", 0.001, 86400},

    {"--max-questions", &O::max_questions, kDecisions, "N", "Questions of one request.", 1, 4096},
    {"--confidence", &O::confidence, kDecisions, "typesafe|vllm",
     "How confidence is computed: scaled so that a uniform guess is 0, or top probability times "
     "label mass."},
    {"--response-fields", &O::response_fields, kDecisions, "vllm|typesafe",
     "Fields of an answer: vLLM's, or only those of the TypeSafe contract (others get the prefix "
     "x_)."},
    {"--diagnostics", &O::diagnostics, kDecisions, "",
     "Add label_mass and argmax_is_label to every answer (needs the full vocabulary, so it costs "
     "time)."},

    {"-asc,--api-server-count", &O::api_server_count, kProcesses, "N",
     "API server processes on the one port. 0: as many as worker groups.", 0, 64},
    {"-dp,--data-parallel-size", &O::data_parallel_size, kProcesses, "N",
     "Worker groups; each holds the whole model and takes a share of the work.", 1, 64},
    {"-tp,--tensor-parallel-size", &O::tensor_parallel_size, kProcesses, "N",
     "Ranks of one worker group, each a process with a part of the model; more than one are "
     "started through mpirun.",
     1, 64},
    {"--mpi-hosts", &O::mpi_hosts, kProcesses, "HOST:RANKS,...",
     "Machines of a worker group's ranks, and how many each takes; the first is this one. Default: "
     "this machine alone."},
    {"--mpi-hostfile", &O::mpi_hostfile, kProcesses, "FILE",
     "The same as a host file of OpenMPI: a line a machine, HOST slots=RANKS."},
    {"--threads", &O::threads, kProcesses, "N",
     "Compute threads of one rank. 0: the machine's cores divided among all ranks of all groups.",
     0, 1024},
    {"--doorbell", &O::doorbell, kProcesses, "futex|zeromq",
     "How API servers wake an idle worker: through the shared arena, or with a ZeroMQ message "
     "(slower; for comparison)."},
    {"--instance-name", &O::instance_name, kProcesses, "NAME",
     "Name of this instance on the machine (letters, digits, - and _). Default: port-PORT."},
    {"--ready-timeout", &O::ready_timeout_s, kProcesses, "SECONDS",
     "Give up when not everything is ready after this time.", 0.1, 86400},
    {"--shutdown-timeout", &O::shutdown_timeout_s, kProcesses, "SECONDS",
     "On SIGTERM, time for requests in flight to be answered. 0: stop at once.", 0, 86400},

    {"-n,--nnodes", &O::nnodes, kHosts, "N",
     "Machines on which this command runs: the first serves, the others lend it their share of "
     "--data-parallel-size. Default: as many as the launcher says, one process on each.",
     1, 64},
    {"-r,--node-rank", &O::node_rank, kHosts, "N",
     "Which of them this one is. Default: as the launcher says.", 0, 63},
    {"--master-addr", &O::master_addr, kHosts, "ADDRESS",
     "Where node 0 is. Default: as the launcher says, if it does."},
    {"--master-port", &O::master_port, kHosts, "PORT",
     "With --nnodes, the port at which node 0 waits for the others.", 1, 65535},
    {"-dpl,--data-parallel-size-local", &O::data_parallel_size_local, kHosts, "N",
     "How many of the worker groups run on this host; the others are lent by hosts that join with "
     "--headless. -1: all of them.",
     -1, 64},
    {"--headless", &O::headless, kHosts, "",
     "Serve no clients here: lend this host's worker groups to the router of another host."},
    {"--router-address", &O::router_address, kHosts, "tcp://HOST:PORT",
     "With --headless: where that router's link listens. Default: --data-parallel-address and "
     "--data-parallel-rpc-port."},
    {"-dpa,--data-parallel-address", &O::data_parallel_address, kHosts, "ADDRESS",
     "Address at which the router waits for other hosts. Default: every IPv4 interface."},
    {"-dpp,--data-parallel-rpc-port", &O::data_parallel_rpc_port, kHosts, "PORT",
     "Port of the same. 0: any free port, printed when ready.", 0, 65535},
    {"--curve-keys", &O::curve_keys, kHosts, "DIR",
     "Folder with the keys by which hosts know each other, made by `sysone keys DIR`: the router's "
     "host needs router.key and hosts.pub, another host host.key and router.pub."},
    {"--allow-unauthenticated-tcp", &O::allow_unauthenticated_tcp, kHosts, "",
     "Link hosts without keys: anybody who reaches the port can join and read what is sent."},
    {"--link-timeout", &O::link_timeout_s, kHosts, "SECONDS",
     "A host that is not heard of for this long is lost: its jobs go elsewhere.", 0.5, 3600},

    {"--max-num-batched-tokens", &O::max_num_batched_tokens, kScheduling, "TOKENS",
     "Most tokens of one forward pass, and half as many while several requests wait; longer "
     "prompts "
     "go in pieces. Larger passes gain little; whoever arrives waits for the one in work.",
     16, 1 << 24},
    {"--max-num-seqs", &O::max_num_seqs, kScheduling, "N", "Questions of one forward pass.", 1,
     65536},
    {"--kv-cache-memory", &O::kv_cache_memory, kScheduling, "BYTES",
     "Memory of one worker group for keys and values: of the prompts in work, and of earlier ones "
     "that others may begin with. 0: 402653184, or what the longest prompt needs if that is more; "
     "on GPUs all that --gpu-memory-utilization leaves, of which this is the most to take."},
    {"--enable-prefix-caching", &O::enable_prefix_caching, kScheduling, "",
     "Compute what a request shares with earlier ones only once. On unless switched off: "
     "--no-enable-prefix-caching."},
    {"--max-num-queued-reqs", &O::max_num_queued_reqs, kScheduling, "N",
     "Requests that may be waiting or running; the next one is answered 503.", 1, 1 << 20},
    {"--max-num-queued-tokens", &O::max_num_queued_tokens, kScheduling, "TOKENS",
     "Tokens to be computed that may be waiting or running; beyond them requests are answered 503.",
     16, 1e9},
    {"--shm-arena-mb", &O::shm_arena_mb, kScheduling, "MIB",
     "Payload of the shared-memory arena; /dev/shm must have a little more.", 12, 1 << 18},

    {"--config", &O::config_file, kOutput, "FILE",
     "YAML file with flags as keys (port: 8000); the command line wins over it."},
    {"--log-level", &O::log_level, kOutput, "debug|info|warning|error",
     "Least important messages that are shown."},
    {"--disable-log-requests", &O::disable_log_requests, kOutput, "",
     "No log line for each request."},
    {"--disable-cascade-attn", &O::disable_cascade_attn, kOutput, "",
     "Deprecated: accepted, does nothing."},

    {"--role-index", &O::role_index, kHidden, "N", "Number of this child.", -1, 65536},
    {"--listen-fd", &O::listen_fd, kHidden, "FD", "Inherited listening socket.", -1, 1 << 20},
    {"--run-dir", &O::run_dir, kHidden, "DIR", "Folder of the instance."},
    {"--model-path", &O::model_path, kHidden, "PATH", "The resolved model."},
    {"--program-dir", &O::program_dir, kHidden, "DIR", "Where the children's programs lie."},
    {"--tuning-dir", &O::tuning_dir, kHidden, "DIR", "Files of choices of algorithms."},
    {"--preload-only", &O::preload_only, kHidden, "", "End when ready."},
    {"--device-file", &O::device_file, kHidden, "FILE", "Tells that there are GPUs."},
    {"--stuck-after", &O::stuck_after_s, kHidden, "SECONDS",
     "Heartbeat age at which a child is replaced.", 0.1, 86400},
};

std::string DefaultText(const ServeFlag& flag) {
  const ServeOptions defaults;
  struct Visitor {
    const ServeOptions& options;
    std::string operator()(std::string O::*member) const { return options.*member; }
    std::string operator()(int O::*member) const { return Format("%d", options.*member); }
    std::string operator()(int64_t O::*member) const { return Format("%ld", options.*member); }
    std::string operator()(double O::*member) const { return Format("%g", options.*member); }
    std::string operator()(bool O::*) const { return ""; }
    std::string operator()(std::vector<std::string> O::*) const { return ""; }
  };
  return std::visit(Visitor{defaults}, flag.member);
}

std::string ShownNames(const ServeFlag& flag, const char* between) {
  std::string text(flag.names);
  const size_t comma = text.find(',');
  if (comma != std::string::npos) text.replace(comma, 1, between);
  return text;
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// `text` broken at spaces into lines of `width`, each after the first indented by `indent`.
std::string Wrapped(std::string_view text, size_t width, size_t indent) {
  std::string out;
  size_t column = 0;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    if (column > 0 && column + 1 + space > width) {
      out += "\n" + std::string(indent, ' ');
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += text.substr(0, space);
    column += space;
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return out;
}

}  // namespace

std::span<const ServeFlag> ServeFlags() { return kFlags; }

std::string_view LongName(const ServeFlag& flag) {
  const size_t comma = flag.names.find(',');
  return comma == std::string_view::npos ? flag.names : flag.names.substr(comma + 1);
}

const ServeFlag* FindServeFlag(std::string_view name) {
  for (const ServeFlag& flag : kFlags) {
    const std::string_view long_name = LongName(flag);
    if (name == long_name) return &flag;
    const size_t rest = long_name.size() + 1;
    if (flag.names.size() > long_name.size() &&
        name == flag.names.substr(0, flag.names.size() - rest))
      return &flag;
  }
  return nullptr;
}

std::string_view NearestServeFlag(std::string_view name) {
  std::string_view nearest;
  size_t least = name.size() / 3 + 1;  // a third of the letters wrong still counts as a slip
  for (const ServeFlag& flag : kFlags) {
    if (flag.group.empty()) continue;
    const std::string_view long_name = LongName(flag);
    // A beginning that fits ("--max-queued" aside, "--shutdown") is as good as one letter wrong.
    const size_t distance =
        name.size() > 4 && long_name.starts_with(name) ? 1 : EditDistance(name, long_name);
    if (distance < least) {
      least = distance;
      nearest = long_name;
    }
  }
  return nearest;
}

bool IsSwitch(const ServeFlag& flag) {
  return std::holds_alternative<bool ServeOptions::*>(flag.member);
}
bool IsList(const ServeFlag& flag) {
  return std::holds_alternative<std::vector<std::string> ServeOptions::*>(flag.member);
}

std::string ServeHelpText(const std::string& program) {
  constexpr size_t kIndent = 8;
  constexpr size_t kWidth = 88;
  std::string out = "Usage: " + program + " [MODEL] [flags]\n\n" +
                    "MODEL is a name (qwen2.5-coder-1.5b, smollm2-135m), a GGUF file, a Hugging "
                    "Face folder or a hub\n"
                    "id such as Qwen/Qwen3-0.6B. Default: " +
                    ServeOptions().model + ".\n";
  std::string_view group;
  for (const ServeFlag& flag : kFlags) {
    if (flag.group.empty()) continue;
    if (flag.group != group) out += "\n" + std::string(flag.group) + ":\n";
    group = flag.group;
    out += "  " + ShownNames(flag, ", ");
    if (!flag.value.empty()) out += " " + std::string(flag.value);
    const std::string value = DefaultText(flag);
    if (!value.empty()) out += "  (default " + value + ")";
    out += "\n" + std::string(kIndent, ' ') + Wrapped(flag.help, kWidth, kIndent) + "\n";
  }
  return out + "\n  -h, --help\n        Show this text.\n  --version\n        Show the version.\n";
}

std::string ServeFlagsMarkdown() {
  const auto escaped = [](std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '|') out += '\\';
      out += c;
    }
    return out;
  };
  std::string out;
  std::string_view group;
  for (const ServeFlag& flag : kFlags) {
    if (flag.group.empty()) continue;
    if (flag.group != group) {
      out += (out.empty() ? "**" : "\n**") + std::string(flag.group) +
             "**\n\n| flag | default | meaning |\n|---|---|---|\n";
      group = flag.group;
    }
    const std::string value = flag.value.empty() ? "" : " " + std::string(flag.value);
    const std::string fallback = DefaultText(flag);
    out += "| `" + ShownNames(flag, "`, `") + escaped(value) + "` | " +
           (fallback.empty() ? "" : "`" + fallback + "`") + " | " + escaped(flag.help) + " |\n";
  }
  return out;
}

}  // namespace sysone
