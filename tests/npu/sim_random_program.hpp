#pragma once

#include <tenon/npu/isa/program.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace tenon::npu::testing {

/// A program of one or more layers with what it reads: convolutions, products, depthwise
/// convolutions, pools and elementwise ops of random shapes and strides, each loaded, computed and
/// stored tile by tile with two sets of buffers and the tokens that this needs.
struct RandomProgram {
  isa::Program program;
  std::vector<std::byte> weight;
  std::vector<std::byte> input;
  std::uint32_t output_bytes = 0;  ///< of segment output that it writes
  std::uint32_t ftmp_bytes = 0;    ///< of segment ftmp
};

/// Fits 64 KiB of OCM and 64 KiB of ACC. With `tiled` false every layer is one tile; the shapes,
/// data and results of one seed are the same either way.
RandomProgram random_program(std::uint64_t seed, bool tiled);

inline constexpr std::uint32_t random_ocm_bytes = 256 << 10;
inline constexpr std::uint32_t random_acc_bytes = 128 << 10;
inline constexpr const char* random_params = "ocm=256KiB&acc=128KiB";

}  // namespace tenon::npu::testing
