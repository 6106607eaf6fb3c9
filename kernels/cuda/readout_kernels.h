// Launches of the kernels that read answers out of final rows: logits of labels, and what the whole vocabulary says. What
// row_kernels.h says of its launches is true of these, too. Sums are float32, in an order that depends on the table's encoding, the
// number of columns and whether rows start on 16 bytes, and on nothing else: a label's logit has the same bits in both.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/row_kernels.h"

namespace sysone {

// out[i] = x[row_of[i]] · head[ids[i]]; 0 for kNoToken. row_of, ids, out [count]; x [rows, head.cols]. `out` may be pinned
// memory of the host that the device sees.
void LaunchLabelLogits(const float* x, const TableRows& head, const int32_t* row_of,
                       const TokenId* ids, int32_t count, float* out, cudaStream_t stream);

// Bytes that LaunchSummarizeHead needs for `rows` rows. Never fewer for more rows.
int64_t SummarizeHeadScratchBytes(int64_t vocab, int32_t rows);

// log Σ exp and first maximum of x[r] · head[v] over all v, head.rows ≥ 1 of them. x [rows, head.cols]; scratch: of the size
// above, on 16 bytes, this call's alone until it is done; out [rows], possibly pinned memory. A logit that is NaN or +infinity
// makes the log NaN; the maximum is then any token.
void LaunchSummarizeHead(const float* x, const TableRows& head, int32_t rows, void* scratch,
                         HeadSummary* out, cudaStream_t stream);

}  // namespace sysone
