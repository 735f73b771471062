#include "machine.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

// The bank that only a simulated device has: orders of execution, and faults on purpose.

namespace tenon::npu::sim {

std::uint32_t Machine::read_simctl(std::uint32_t offset) {
  const std::scoped_lock lock(mutex_);
  switch (offset) {
    case simctl::schedule:
      return random_schedule_ ? 1 : 0;
    case simctl::seed:
      return seed_;
    case simctl::fault_kind:
      return static_cast<std::uint32_t>(plan_.kind);
    case simctl::fault_nth:
      return plan_.nth;
    case simctl::fault_layer:
      return plan_layer_;
    case simctl::faults_fired:
      return faults_.fired();
    case simctl::faults_armed:
      return faults_.armed();
    case simctl::host_dmas:
      return host_dmas_;
    case simctl::now_lo:
      return static_cast<std::uint32_t>(now_);
    case simctl::now_hi:
      return static_cast<std::uint32_t>(now_ >> 32);
    default:
      throw Error(Errc::out_of_range, "simctl", fmt::format("no register {:#x} to read", offset));
  }
}

void Machine::write_simctl(std::uint32_t offset, std::uint32_t value) {
  Lock lock(mutex_);
  switch (offset) {
    case simctl::schedule:
      random_schedule_ = value != 0;
      return;
    case simctl::seed:
      seed_ = value;
      return;
    case simctl::fault_kind:
      if (value >= fault_kinds) {
        throw Error(Errc::out_of_range, "simctl", fmt::format("fault kind {}", value));
      }
      plan_.kind = static_cast<FaultKind>(value);
      return;
    case simctl::fault_nth:
      plan_.nth = value;
      return;
    case simctl::fault_layer:
      plan_layer_ = value;
      return;
    case simctl::fault_arm:
      lock.unlock();
      return arm_fault();
    case simctl::replug:
      if (!removed_) return;
      removed_ = false;
      request_reset(lock, 2);
      return;
    default:
      throw Error(Errc::out_of_range, "simctl", fmt::format("no register {:#x} to write", offset));
  }
}

void Machine::arm_fault() {
  FaultPlan plan = plan_;
  if (plan_layer_ <= 0xFFFF && has_layer(plan.kind)) {
    plan.layer = static_cast<std::uint16_t>(plan_layer_);
  }
  if (plan.nth > 0) return faults_.arm(plan);
  switch (plan.kind) {
    case FaultKind::flip_weight:
      flip(plan.kind, isa::Segment::weight);
      break;
    case FaultKind::flip_instr:
      flip(plan.kind, isa::Segment::instr);
      break;
    case FaultKind::removed: {
      const std::scoped_lock lock(mutex_);
      remove();
      abort_ = true;
      attention_ = true;
      work_.notify_all();
      break;
    }
    default:
      throw Error(Errc::out_of_range, "simctl",
                  fmt::format("{} cannot happen at once", name(plan.kind)));
  }
  faults_.count_one();
}

}  // namespace tenon::npu::sim
