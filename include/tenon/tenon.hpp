#pragma once

// All headers, for programs that link tenon::tenon. Including it registers the CPU backend and the
// reference backend before main() runs.

#include <tenon/backend.hpp>
#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/buffer.hpp>
#include <tenon/control.hpp>
#include <tenon/derivatives.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/exe.hpp>
#include <tenon/fields.hpp>
#include <tenon/grad.hpp>
#include <tenon/graph.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/io/file.hpp>
#include <tenon/io/load.hpp>
#include <tenon/io/network.hpp>
#include <tenon/io/npy.hpp>
#include <tenon/io/save.hpp>
#include <tenon/layout.hpp>
#include <tenon/log.hpp>
#include <tenon/models/answer_batch.hpp>
#include <tenon/models/encoder.hpp>
#include <tenon/models/language_model.hpp>
#include <tenon/models/vision.hpp>
#include <tenon/nn.hpp>
#include <tenon/object.hpp>
#include <tenon/ops.hpp>
#include <tenon/optimize.hpp>
#include <tenon/profile.hpp>
#include <tenon/program.hpp>
#include <tenon/quant_params.hpp>
#include <tenon/repeat.hpp>
#include <tenon/session.hpp>
#include <tenon/snapshot.hpp>
#include <tenon/text/objects.hpp>
#include <tenon/text/tokenizer.hpp>
#include <tenon/train.hpp>
#include <tenon/version.hpp>
#include <tenon/weights_view.hpp>

namespace tenon::detail {

// Registering twice is harmless. Hidden: each library of a process that has its own copy of Tenon has
// its own registry.
[[gnu::visibility("hidden")]] inline const bool backends_registered = [] {
  register_cpu_backend();
  register_reference_backend();
  return true;
}();

}  // namespace tenon::detail
