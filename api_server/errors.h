// Errors as clients see them: the one place that turns codes into HTTP statuses and into the body
// that both kinds of clients read (`detail` as TypeSafe's SDK expects it, `error` as OpenAI's and
// vLLM's).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api_server/http_types.h"
#include "api_server/validation.h"
#include "base/status.h"

namespace sysone {

struct ApiError {
  Code code = Code::kInternal;
  std::string
      message;  // for the client: what is wrong and what to change; empty: the first issue's
  std::string param =
      {};  // the wrong field, "questions.team.criteria"; empty: made of the first issue
  std::vector<ValidationIssue> issues =
      {};                 // broken rules of a 422; the first kMaxListedIssues are shown
  int retry_after_s = 0;  // above 0: a Retry-After header, whole seconds
  int http_status = 0;    // above 0: a status that no Code stands for (405, 408, 414, …)
};

// The HTTP status of a code. kOk and the codes of start-up never reach a client; they count as our
// fault (500).
int HttpStatusOf(Code code);

// Errors from below: a Status (from a slot, say) or what the decision layer found. The message of
// an internal error is replaced by a fixed sentence, so that nothing of the server's inside reaches
// a client: log the original.
ApiError ErrorFrom(const Status& status, int retry_after_s = 0);
ApiError ErrorFrom(RequestProblem problem);

// The JSON response; 429 and 503 always carry Retry-After (1 s unless given).
HttpResponse ErrorResponse(const ApiError& error);

}  // namespace sysone
