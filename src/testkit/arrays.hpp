// Arrays that ops and backends are tried with, and how results are compared.
#pragma once

#include <tenon/host_buffer.hpp>

#include <cstddef>
#include <optional>
#include <random>
#include <string>

namespace tenon::testkit {

/// Budget of a graph of a few ops: thousands are made, and address sanitizers fill what is freed.
inline constexpr std::size_t small_graph_bytes = std::size_t{1} << 18;

bool same_bytes(const HostBuffer& a, const HostBuffer& b);

/// A dense copy.
HostBuffer copy_of(const HostBuffer& array);

/// Elements uniform in [low, high), those of integers rounded down.
HostBuffer random_array(const Shape& shape, std::mt19937_64& engine, double low, double high);

/// How the arrays differ by more than `tolerance` times max(1, |want|), in words; nothing where they do
/// not. A NaN is as good as another.
std::optional<std::string> difference(const HostBuffer& got, const HostBuffer& want,
                                      double tolerance);

}  // namespace tenon::testkit
