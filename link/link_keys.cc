// SPDX-License-Identifier: Apache-2.0
#include "link/link_keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/log.h"

namespace sysone {
namespace {

constexpr size_t kKeyChars = 40;

// Z85 has no space, so a comment is what begins with "# " or stands behind a space.
std::string KeyOf(const std::string& line) {
  if (line.starts_with("# ")) return "";
  return line.substr(0, line.find_first_of(" \t\r"));
}

bool IsKey(const std::string& key) {
  uint8_t bytes[32];
  return key.size() == kKeyChars && zmq_z85_decode(bytes, key.c_str()) != nullptr;
}

// The keys of a file, one a line.
Result<std::vector<std::string>> ReadKeys(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return Error(Code::kNotFound, "--curve-keys: cannot read %s; `sysone keys DIR` makes keys",
                 path.c_str());
  std::vector<std::string> keys;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string key = KeyOf(line);
    if (key.empty()) continue;
    if (!IsKey(key))
      return Error(Code::kInvalidArgument,
                   "--curve-keys: %s: line %d holds no key of %zu characters", path.c_str(), number,
                   kKeyChars);
    keys.push_back(key);
  }
  return keys;
}

Status WriteFile(const std::string& path, const std::string& text, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0)
    return Error(Code::kInvalidArgument, "cannot make %s: %s", path.c_str(), strerror(errno));
  const ssize_t written = write(fd, text.data(), text.size());
  const bool whole = written == static_cast<ssize_t>(text.size());
  if (close(fd) != 0 || !whole)
    return Error(Code::kInternal, "cannot write %s: %s", path.c_str(), strerror(errno));
  return {};
}

std::string PairText(const CurveKeyPair& pair) {
  return "# A pair of keys of sysone: the public one, then the secret one.\n" + pair.public_key +
         "\n" + pair.secret_key + "\n";
}

Result<CurveKeyPair> ReadPair(const std::string& path) {
  SYSONE_ASSIGN_OR_RETURN(const std::vector<std::string> keys, ReadKeys(path));
  if (keys.size() != 2)
    return Error(Code::kInvalidArgument, "--curve-keys: %s must hold two keys, it has %zu",
                 path.c_str(), keys.size());
  char derived[kKeyChars + 1];
  if (zmq_curve_public(derived, keys[1].c_str()) != 0 || keys[0] != derived)
    return Error(Code::kInvalidArgument, "--curve-keys: the two keys of %s do not belong together",
                 path.c_str());
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && (info.st_mode & 077) != 0)
    SYSONE_WARNING("%s holds a secret key, and others than its owner may read it (mode %o)",
                   path.c_str(), info.st_mode & 0777);
  return CurveKeyPair{keys[0], keys[1]};
}

}  // namespace

Result<CurveKeyPair> MakeCurveKeyPair() {
  char public_key[kKeyChars + 1], secret_key[kKeyChars + 1];
  if (zmq_curve_keypair(public_key, secret_key) != 0)
    return Error(Code::kUnsupported, "this ZeroMQ library has no CURVE: %s", zmq_strerror(errno));
  return CurveKeyPair{public_key, secret_key};
}

Status WriteLinkKeys(const std::string& dir) {
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST)
    return Error(Code::kInvalidArgument, "cannot make the folder %s: %s", dir.c_str(),
                 strerror(errno));
  SYSONE_ASSIGN_OR_RETURN(const CurveKeyPair router, MakeCurveKeyPair());
  SYSONE_ASSIGN_OR_RETURN(const CurveKeyPair host, MakeCurveKeyPair());
  SYSONE_RETURN_IF_ERROR(WriteFile(dir + "/router.key", PairText(router), 0600));
  SYSONE_RETURN_IF_ERROR(WriteFile(dir + "/host.key", PairText(host), 0600));
  SYSONE_RETURN_IF_ERROR(WriteFile(dir + "/router.pub", router.public_key + "\n", 0644));
  return WriteFile(
      dir + "/hosts.pub",
      "# Public keys of the hosts that may join, one a line.\n" + host.public_key + "\n", 0644);
}

Result<LinkKeys> ReadLinkKeys(const std::string& dir, LinkEnd end) {
  const bool router = end == LinkEnd::kRouter;
  LinkKeys keys;
  SYSONE_ASSIGN_OR_RETURN(keys.own, ReadPair(dir + (router ? "/router.key" : "/host.key")));
  const std::string peers = dir + (router ? "/hosts.pub" : "/router.pub");
  SYSONE_ASSIGN_OR_RETURN(keys.peers, ReadKeys(peers));
  if (keys.peers.empty() || (!router && keys.peers.size() != 1))
    return Error(Code::kInvalidArgument, "--curve-keys: %s must hold %s, it has %zu", peers.c_str(),
                 router ? "the key of at least one host" : "the router's one key",
                 keys.peers.size());
  return keys;
}

}  // namespace sysone
