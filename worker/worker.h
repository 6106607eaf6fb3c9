// A worker process from its options to its end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/launch_place.h"
#include "base/serve_options.h"
#include "base/status.h"
#include "worker/devices.h"

namespace sysone {

// Joins the other ranks of --tensor-parallel-size, if there are any, and loads its part of the model. Rank 0 attaches to the
// instance's arena and serves jobs until it is told to stop; the others do what it tells them. Returns why it could not
// start; once it serves, only ok. `place`: what the launcher says of this rank before MPI does.
Status RunWorker(const ServeOptions& options, const LaunchPlace& place, const Devices& devices);

}  // namespace sysone
