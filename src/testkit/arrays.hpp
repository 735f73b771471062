// Arrays that ops and backends are tried with, and how results are compared.
#pragma once

#include <tenon/host_buffer.hpp>

#include <optional>
#include <random>
#include <string>

namespace tenon::testkit {

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
