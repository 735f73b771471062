// What happens to the steps of a partition before they become tasks, pass by pass.
#pragma once

#include "fused_points.hpp"
#include "registered_kernels.hpp"

#include <tenon/calibration.hpp>
#include <tenon/lowered.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cpu {

struct PassOptions {
  bool exact = false;
  int threads = 1;
  const quant::CalibrationTable* int8 = nullptr;  ///< ranges of values, or null
};

/// The steps that passes rewrite, and what the rewritten ones need of a run.
struct PartitionSteps {
  PartitionSteps(const Lowered& whole, std::span<const Step> part);

  const Lowered& program;
  std::span<const Step> original;     ///< of `program`
  const std::vector<Operand> leaves;  ///< what others read afterwards
  std::vector<Step> steps;
  std::vector<std::string> notes;  ///< for people, one `value: what` each
  // What steps refer to.
  std::vector<std::unique_ptr<const RegisteredStep>> registered;
  std::vector<std::unique_ptr<const PointGroup>> groups;
  std::int64_t shared_bytes = 0;      ///< of Place::Kind::shared_scratch
  std::int64_t recomputed_bytes = 0;  ///< of Place::Kind::scratch, for each thread
};

struct Pass {
  std::string_view name;
  /// Null: always.
  bool (*applies)(const PassOptions& options);
  void (*run)(PartitionSteps& partition, const PassOptions& options);
};

/// In the order in which they run.
std::span<const Pass> passes() noexcept;
void run_passes(PartitionSteps& partition, const PassOptions& options);

}  // namespace tenon::cpu
