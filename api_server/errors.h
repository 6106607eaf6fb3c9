// Errors as clients see them: one place that turns codes into HTTP statuses and into the body that
// both kinds of clients read (`detail` as TypeSafe's SDK expects it, `error` as OpenAI's and
// vLLM's). SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "api_server/http_types.h"
#include "base/status.h"

namespace sysone {

// One step of a path into the request: a key or an index. {"body","questions","team","criteria",0}.
using LocPart = std::variant<std::string, int64_t>;

// One broken rule of a well-formed request.
struct ErrorItem {
  std::vector<LocPart> loc;  // begins with "body"
  std::string message;       // names the field and says what to change
  std::string type =
      "value_error";  // machine-readable kind: "missing", "value_error", "string_type", …
};

struct ApiError {
  Code code = Code::kInternal;
  std::string message;  // summary; when empty, made of the first item
  std::string param =
      {};  // field that is wrong, "questions.team.criteria"; empty: taken from the first item
  std::vector<ErrorItem> items = {};  // validation errors; at most the first 10 are shown
  int retry_after_s = 0;              // above 0: a Retry-After header, whole seconds
  int http_status = 0;  // above 0: a status that no Code stands for (405, 408, 414, 415, 431)
};

inline constexpr size_t kMaxErrorItems = 10;

// The HTTP status of a code. Only kOk and codes of start-up have none of their own; they count as
// our fault (500).
int HttpStatusOf(Code code);

// An error from a Status, for example one that came back in a slot. Messages of internal errors are
// replaced by a fixed sentence: nothing of the server's inside reaches a client.
ApiError ErrorFromStatus(const Status& status, const std::string& param = "");

// The JSON response; 503 and 429 always carry Retry-After (1 s unless given).
HttpResponse ErrorResponse(const ApiError& error);

}  // namespace sysone
