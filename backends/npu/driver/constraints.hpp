// What the NPU asks of an op, as data: `refuses` answers from this table, docs/npu.md shows it.
#pragma once

#include <tenon/lowered.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tenon::npu {

// Limits of the instruction set (backends/npu/isa).
inline constexpr std::int64_t max_pool_window = 15;   ///< of a pool, and of its padding
inline constexpr std::int64_t max_conv_padding = 63;  ///< on each side of an image

struct Constraint {
  std::string_view op;      ///< name of an op, or "*" for all
  std::string_view clause;  ///< what must hold
  /// Nothing when it holds, or how it fails: "kernel 13x13, at most 11x11".
  std::optional<std::string> (*fails)(const Step& step);
};

std::span<const Constraint> constraints() noexcept;

/// The first clause that fails for this step; whether an op is known at all is the first one.
std::optional<std::string> failed_constraint(const Step& step);

/// Why not even one row of the step's result fits on a device with so many bytes of OCM and ACC;
/// only images can be too wide.
std::optional<std::string> exceeds_device(const Step& step, std::int64_t ocm_bytes,
                                          std::int64_t acc_bytes);

/// Why a factor per channel of what the step reads and makes does not fit, in f32, on a device with
/// so many bytes of OCM.
std::optional<std::string> factors_exceed(const Step& step, std::int64_t ocm_bytes);

/// Whether the op computes each element of its f32 result from one element of its one f32 operand,
/// so that a table of 256 entries is the op.
bool is_table_op(const OpInstance& op) noexcept;

/// Bounds and slope of an op that is one on a requantised result (relu, relu6, clamp, leaky_relu).
struct Activation;
std::optional<Activation> activation_of(const OpInstance& op) noexcept;

}  // namespace tenon::npu
