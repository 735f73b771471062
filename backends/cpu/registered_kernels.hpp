// Kernels that users registered (tenon/kernel.hpp), as steps and tasks of this backend.
#pragma once

#include <tenon/kernel.hpp>
#include <tenon/lowered.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

namespace cpu {
/// A step's op, and the kernel that computes it.
struct RegisteredStep {
  OpInstance op;
  KernelPtr kernel;
};
}  // namespace cpu

/// Stands for the op of a step that a registered kernel computes, so that no pass of the backend
/// takes it for one that our kernels compute. Never in a program; no op of the registry.
struct Registered {
  static constexpr std::string_view name = "registered";
  static constexpr int min_inputs = 0, max_inputs = 1 << 16;
  const cpu::RegisteredStep* step = nullptr;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(Registered);

namespace cpu {

/// As find_kernel("cpu", ...); of an op on objects without a kernel, one that calls its reference on
/// one thread: that is the class's own code, and no other backend would do it better.
KernelPtr registered_kernel_for(const Step& step, std::optional<std::string>* why = nullptr);

/// Puts Registered in the place of each op, in loops too, that a registered kernel computes. What
/// they refer to is the caller's to keep.
std::vector<std::unique_ptr<const RegisteredStep>> take_registered_steps(std::vector<Step>& steps);

}  // namespace cpu
}  // namespace tenon
