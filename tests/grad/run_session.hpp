#pragma once

#include <tenon/device.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/session.hpp>

#include <utility>
#include <vector>

namespace tenon::testing {

/// One run of the session, from host arrays to host arrays.
inline std::vector<HostBuffer> run_session(Session& session,
                                           const std::vector<HostBuffer>& arrays) {
  std::vector<Buffer> inputs;
  for (const HostBuffer& array : arrays) inputs.push_back(array.to_device(cpu_device()));
  std::vector<HostBuffer> results;
  for (const Buffer& result : session.forward(std::move(inputs)))
    results.push_back(result.to_host());
  return results;
}

}  // namespace tenon::testing
