// Running small programs in tests of sessions and plans.
#pragma once

#include "support/catch_chunk.hpp"  // before any comparison of chunks
#include "support/literals.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/graph.hpp>
#include <tenon/session.hpp>

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {

inline Buffer device(const HostBuffer& host) { return host.contiguous().to_device(cpu_device()); }

/// The backends that a name stands for: "cpu" with the reference behind it, or the reference alone.
inline std::vector<BackendPtr> backends(std::string_view name, int threads = 1) {
  register_cpu_backend();
  register_reference_backend();
  if (name == "reference") return {make_backend("reference")};
  return {make_backend("cpu", {.threads = threads, .exact = true}), make_backend("reference")};
}

inline Session session(Program program, std::map<std::string, Buffer> weights = {},
                       std::string_view backend = "reference") {
  Session made(std::move(program), {.backends = backends(backend)});
  made.bind(std::make_shared<const WeightSet>(std::move(weights)));
  return made;
}

inline bool same_bits(const HostBuffer& a, const HostBuffer& b) {
  return a.shape() == b.shape() &&
         (a.shape().bytes() == 0 || std::memcmp(a.contiguous().bytes(), b.contiguous().bytes(),
                                                static_cast<std::size_t>(a.shape().bytes())) == 0);
}

inline std::vector<float> values(const Buffer& buffer) {
  const HostBuffer host = buffer.to_host();
  const auto all = host.values<float>();
  return {all.begin(), all.end()};
}

}  // namespace tenon::testing
