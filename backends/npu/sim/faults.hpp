#pragma once

#include <tenon/backends/npu_sim.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::npu::sim {

using simctl::FaultKind;

/// "The nth occurrence of this, in this layer only where one is given." Fires once.
struct FaultPlan {
  FaultKind kind = FaultKind::hang;
  std::uint32_t nth = 1;
  std::optional<std::uint16_t> layer;
};

inline constexpr std::uint32_t fault_kinds = 12;
std::string_view name(FaultKind kind) noexcept;
/// Whether occurrences of this kind belong to an instruction, and so to a layer.
bool has_layer(FaultKind kind) noexcept;

/// "hang@3,2+lost_irq@1": kinds, occurrences from 1, layers. Nothing where the text is malformed;
/// `why` then says what is wrong.
std::optional<std::vector<FaultPlan>> parse_faults(std::string_view text, std::string& why);
std::string format_faults(const std::vector<FaultPlan>& plans);

/// Counts occurrences and says when a planned one has come. Calls come from any thread.
class Faults {
 public:
  explicit Faults(std::uint32_t seed) : random_(seed) {}

  void arm(const FaultPlan& plan);
  /// One more occurrence; whether it shall go wrong.
  bool strikes(FaultKind kind, std::uint16_t layer = 0);
  /// A seeded number below `bound`, for the choice of a bit.
  std::uint64_t pick(std::uint64_t bound);
  /// A fault that struck without an occurrence.
  void count_one() noexcept { ++fired_; }

  std::uint32_t fired() const noexcept { return fired_; }
  std::uint32_t armed() const noexcept { return armed_; }

 private:
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::vector<FaultPlan> plans_;
  std::atomic<std::uint32_t> armed_ = 0;  // read without the mutex: most runs have none
  std::atomic<std::uint32_t> fired_ = 0;
};

}  // namespace tenon::npu::sim
