// The parser is our own: with the table at hand, what is left is splitting arguments and reading
// numbers, while a library would want its own second description of every flag and its own idea of
// lists ("[a,b]") and short names ("-tp").
// SPDX-License-Identifier: Apache-2.0
#include "base/serve_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/config_file.h"
#include "base/json.h"
#include "base/node_plan.h"
#include "base/serve_flags.h"

namespace sysone {
namespace {

// One flag as written: its values in order, not yet read.
struct RawFlag {
  const ServeFlag* flag;
  std::vector<std::string> values;  // a switch: "true" or "false"
};

Status Bad(const ServeFlag& flag, const std::string& what) {
  return Error(Code::kInvalidArgument, "%s: %s", std::string(LongName(flag)).c_str(), what.c_str());
}

Status UnknownFlag(const std::string& name) {
  const std::string nearest(NearestServeFlag(name));
  if (nearest.empty())
    return Error(Code::kInvalidArgument, "unknown flag %s; --help shows all flags", name.c_str());
  return Error(Code::kInvalidArgument, "unknown flag %s; did you mean %s?", name.c_str(),
               nearest.c_str());
}

bool LooksLikeFlag(std::string_view text) {
  return text.size() > 1 && text[0] == '-' && !(text[1] >= '0' && text[1] <= '9') && text[1] != '.';
}

// Values of one argument for a list: a JSON list of strings gives its items.
Status AppendListValues(const ServeFlag& flag, const std::string& text,
                        std::vector<std::string>& out) {
  if (!text.starts_with('[')) {
    out.push_back(text);
    return {};
  }
  const auto json = Json::Parse(text);
  if (!json.ok() || !json->is_array()) return Bad(flag, "'" + text + "' is not a JSON list");
  for (const Json& item : json->items()) {
    if (!item.is_string()) return Bad(flag, "a JSON list here holds strings only");
    out.push_back(item.string());
  }
  return {};
}

Status ReadSwitch(const ServeFlag& flag, const std::string* value, RawFlag& raw) {
  const std::string text = value == nullptr ? "true" : *value;
  if (text != "true" && text != "false")
    return Bad(flag, "is a switch: true or false, not '" + text + "'");
  raw.values = {text};
  return {};
}

struct Scanned {
  std::vector<RawFlag> flags;
  std::string model;  // the positional argument; "" when absent
  bool help = false;
  bool version = false;
};

// Splits the command line into flags and their values: "--flag value", "--flag=value", lists up to
// the next flag.
Result<Scanned> Scan(std::span<const std::string> args) {
  Scanned scanned;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "-h" || arg == "--help") {
      scanned.help = true;
      continue;
    }
    if (arg == "--version") {
      scanned.version = true;
      continue;
    }
    if (!LooksLikeFlag(arg)) {
      if (!scanned.model.empty())
        return Error(Code::kInvalidArgument, "unexpected argument '%s': the model is already '%s'",
                     arg.c_str(), scanned.model.c_str());
      if (arg.empty()) return Error(Code::kInvalidArgument, "the model's name is empty");
      scanned.model = arg;
      continue;
    }
    const size_t equals = std::min(arg.find('='), arg.size());
    std::string name = arg.substr(0, equals);
    std::replace(name.begin(), name.end(), '_', '-');
    RawFlag raw{FindServeFlag(name), {}};
    std::string inline_value;
    bool has_inline = equals < arg.size();
    if (has_inline) inline_value = arg.substr(equals + 1);
    if (raw.flag == nullptr && name.starts_with("--no-") && !has_inline) {
      raw.flag = FindServeFlag("--" + name.substr(5));
      if (raw.flag != nullptr && !IsSwitch(*raw.flag)) raw.flag = nullptr;
      inline_value = "false";
      has_inline = true;
    }
    if (raw.flag == nullptr) return UnknownFlag(name);
    if (IsSwitch(*raw.flag)) {
      SYSONE_RETURN_IF_ERROR(ReadSwitch(*raw.flag, has_inline ? &inline_value : nullptr, raw));
    } else if (IsList(*raw.flag)) {
      if (has_inline) SYSONE_RETURN_IF_ERROR(AppendListValues(*raw.flag, inline_value, raw.values));
      while (!has_inline && i + 1 < args.size() && !LooksLikeFlag(args[i + 1]))
        SYSONE_RETURN_IF_ERROR(AppendListValues(*raw.flag, args[++i], raw.values));
      if (raw.values.empty() && !has_inline) return Bad(*raw.flag, "needs a value");
    } else if (has_inline) {
      raw.values = {inline_value};
    } else if (i + 1 < args.size() && !LooksLikeFlag(args[i + 1])) {
      raw.values = {args[++i]};
    } else {
      return Bad(*raw.flag, "needs a value");
    }
    scanned.flags.push_back(std::move(raw));
  }
  return scanned;
}

template <class Number>
Status ReadNumber(const ServeFlag& flag, const std::string& text, Number& out) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  const char* kind = std::is_integral_v<Number> ? "whole number" : "number";
  // Written so that NaN is refused, too.
  if (!whole ||
      !(static_cast<double>(value) >= flag.least && static_cast<double>(value) <= flag.most))
    return Bad(flag, Format("'%s' is not a %s from %.15g to %.15g", text.c_str(), kind, flag.least,
                            flag.most));
  out = value;
  return {};
}

Status CheckWord(const ServeFlag& flag, const std::string& text) {
  if (flag.value.find('|') == std::string_view::npos) return {};
  std::string words = "|" + std::string(flag.value) + "|";
  if (!text.empty() && text.find('|') == std::string::npos &&
      words.find("|" + text + "|") != std::string::npos)
    return {};
  return Bad(flag, "'" + text + "' is none of " + std::string(flag.value));
}

// Writes the flag's values where they belong. Of a plain flag given twice the last one counts;
// lists collect.
Status Store(const RawFlag& raw, ServeOptions& options) {
  struct Visitor {
    const RawFlag& raw;
    ServeOptions& options;
    const std::string& text() const { return raw.values.back(); }
    Status operator()(bool ServeOptions::*member) const {
      options.*member = text() == "true";
      return {};
    }
    Status operator()(std::string ServeOptions::*member) const {
      SYSONE_RETURN_IF_ERROR(CheckWord(*raw.flag, text()));
      options.*member = text();
      return {};
    }
    Status operator()(std::vector<std::string> ServeOptions::*member) const {
      auto& list = options.*member;
      list.insert(list.end(), raw.values.begin(), raw.values.end());
      return {};
    }
    Status operator()(int ServeOptions::*member) const {
      return ReadNumber(*raw.flag, text(), options.*member);
    }
    Status operator()(int64_t ServeOptions::*member) const {
      return ReadNumber(*raw.flag, text(), options.*member);
    }
    Status operator()(double ServeOptions::*member) const {
      return ReadNumber(*raw.flag, text(), options.*member);
    }
  };
  return std::visit(Visitor{raw, options}, raw.flag->member);
}

// The flags of a config file that the command line does not give.
Status MergeConfig(const std::string& path, Scanned& scanned) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return Error(Code::kNotFound, "--config: cannot read '%s'", path.c_str());
  auto entries = ParseConfig(text.str());
  if (!entries.ok()) return entries.status().WithContext("--config: " + path);
  std::vector<RawFlag> from_file;
  for (const ConfigEntry& entry : *entries) {
    const std::string where = Format("--config: %s: line %d", path.c_str(), entry.line);
    std::string name = "--" + entry.key;
    std::replace(name.begin(), name.end(), '_', '-');
    RawFlag raw{FindServeFlag(name), entry.values};
    if (raw.flag == nullptr || raw.flag->group.empty()) return UnknownFlag(name).WithContext(where);
    if (name == "--config")
      return Error(Code::kInvalidArgument, "%s: a config file names no other", where.c_str());
    if (name == "--model" && !scanned.model.empty()) continue;
    if (!IsList(*raw.flag) && raw.values.size() != 1)
      return Bad(*raw.flag, "takes one value, not a list").WithContext(where);
    if (IsSwitch(*raw.flag)) {
      const Status read = ReadSwitch(*raw.flag, &entry.values[0], raw);
      if (!read.ok()) return read.WithContext(where);
    }
    const bool given = std::any_of(scanned.flags.begin(), scanned.flags.end(),
                                   [&](const RawFlag& other) { return other.flag == raw.flag; });
    if (!given) from_file.push_back(std::move(raw));
  }
  scanned.flags.insert(scanned.flags.begin(), from_file.begin(), from_file.end());
  return {};
}

bool IsName(const std::string& text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return c < 128 && (std::isalnum(c) || c == '-' || c == '_');
         });
}

// "tcp://HOST:PORT"
bool IsTcpAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (!text.starts_with("tcp://") || colon == std::string::npos || colon <= 6) return false;
  int port = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
  return error == std::errc() && stop == end && port > 0 && port <= 65535;
}

Status CheckHosts(ServeOptions& options) {
  if (options.data_parallel_size_local > options.data_parallel_size)
    return Error(Code::kInvalidArgument,
                 "--data-parallel-size-local %d is more than --data-parallel-size %d",
                 options.data_parallel_size_local, options.data_parallel_size);
  if (options.headless) {
    if (LocalGroups(options) == 0)
      return Error(Code::kInvalidArgument,
                   "--headless with --data-parallel-size-local 0 leaves nothing to do");
    if (options.router_address.empty() && !options.data_parallel_address.empty())
      options.router_address = Format("tcp://%s:%d", options.data_parallel_address.c_str(),
                                      options.data_parallel_rpc_port);
    if (!IsTcpAddress(options.router_address))
      return Error(Code::kInvalidArgument,
                   "--headless needs --router-address tcp://HOST:PORT, the link of the router that "
                   "it joins, not '%s'",
                   options.router_address.c_str());
  } else if (!options.router_address.empty()) {
    return Error(Code::kInvalidArgument, "--router-address goes with --headless alone");
  }
  if ((options.headless || RemoteGroups(options) > 0) && options.curve_keys.empty() &&
      !options.allow_unauthenticated_tcp)
    return Error(Code::kInvalidArgument,
                 "groups on other hosts need keys: `sysone keys DIR` makes them, --curve-keys DIR "
                 "takes them; or let anybody in with --allow-unauthenticated-tcp");
  return {};
}

// Rules between flags, and values that only make sense when read.
Status CheckTogether(ServeOptions& options) {
  if (options.api_server_count == 0) options.api_server_count = options.data_parallel_size;
  SYSONE_RETURN_IF_ERROR(PlanNodes(options));
  SYSONE_RETURN_IF_ERROR(CheckHosts(options));
  if (!options.instance_name.empty() && !IsName(options.instance_name))
    return Error(Code::kInvalidArgument,
                 "--instance-name: '%s' is not 1 to 64 of letters, digits, '-' and '_'",
                 options.instance_name.c_str());
  if (options.dtype == "fp8" && options.device == "cpu")
    return Error(Code::kInvalidArgument,
                 "--dtype fp8 is for GPUs and does not go with --device cpu");
  if (!options.mpi_hosts.empty() && !options.mpi_hostfile.empty())
    return Error(Code::kInvalidArgument, "--mpi-hosts and --mpi-hostfile do not go together");
  const auto& origins = options.allowed_origins;
  if (options.allow_credentials && std::find(origins.begin(), origins.end(), "*") != origins.end())
    return Error(Code::kInvalidArgument,
                 "--allow-credentials does not go with the origin \"*\"; name the origins in "
                 "--allowed-origins");
  for (const std::string& key : options.api_keys)
    if (key.empty()) return Error(Code::kInvalidArgument, "--api-key: a key is empty");
  for (const std::string& name : options.served_model_names)
    if (name.empty()) return Error(Code::kInvalidArgument, "--served-model-name: a name is empty");
  if (options.max_model_len < 0 || options.max_model_len > (int64_t{1} << 24))
    return Error(Code::kInvalidArgument, "--max-model-len: more than 16777216 tokens");
  if (const std::string& kwargs = options.default_chat_template_kwargs; !kwargs.empty()) {
    const auto json = Json::Parse(kwargs);
    if (!json.ok() || !json->is_object())
      return Error(Code::kInvalidArgument, "--default-chat-template-kwargs: not a JSON object: %s",
                   kwargs.c_str());
  }
  return {};
}

}  // namespace

int LocalGroups(const ServeOptions& options) {
  const int local = options.data_parallel_size_local;
  return local < 0 ? options.data_parallel_size : local;
}

int RemoteGroups(const ServeOptions& options) {
  return options.headless ? 0 : options.data_parallel_size - LocalGroups(options);
}

Result<ParsedOptions> ParseServeOptions(const std::string& program,
                                        std::span<const std::string> args) {
  ParsedOptions parsed;
  SYSONE_ASSIGN_OR_RETURN(Scanned scanned, Scan(args));
  if (scanned.help) parsed.text = ServeHelpText(program);
  if (scanned.version) parsed.text = Format("sysone %s\n", SysoneVersion());
  if (!parsed.text.empty()) return parsed;
  for (size_t i = scanned.flags.size(); i-- > 0;) {
    if (LongName(*scanned.flags[i].flag) != "--config") continue;
    const std::string path = scanned.flags[i].values.back();
    SYSONE_RETURN_IF_ERROR(MergeConfig(path, scanned));
    break;
  }
  for (const RawFlag& raw : scanned.flags)
    if (!raw.values.empty()) SYSONE_RETURN_IF_ERROR(Store(raw, parsed.options));
  if (!scanned.model.empty()) parsed.options.model = scanned.model;
  if (parsed.options.model.empty())
    return Error(Code::kInvalidArgument, "the model's name is empty");
  SYSONE_RETURN_IF_ERROR(CheckTogether(parsed.options));
  return parsed;
}

void UseApiKeyFromEnvironment(ServeOptions& options, std::initializer_list<const char*> values) {
  if (!options.api_keys.empty()) return;
  for (const char* value : values) {
    if (value == nullptr || *value == '\0') continue;
    options.api_keys.emplace_back(value);
    return;
  }
}

LogLevel LogLevelOf(const ServeOptions& options) {
  if (options.log_level == "debug") return LogLevel::kDebug;
  if (options.log_level == "warning") return LogLevel::kWarning;
  if (options.log_level == "error") return LogLevel::kError;
  return LogLevel::kInfo;
}

const char* SysoneVersion() { return SYSONE_VERSION; }

}  // namespace sysone
