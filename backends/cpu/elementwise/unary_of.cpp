#include "unary_of.hpp"

#include <tenon/ops/activation.hpp>
#include <tenon/ops/clamp.hpp>

namespace tenon::cpu {
namespace {

UnaryParameters parameters_of(const OpInstance& op) {
  if (const auto* clamp = op.as<Clamp>()) {
    return {static_cast<float>(clamp->min), static_cast<float>(clamp->max)};
  }
  if (const auto* leaky = op.as<LeakyRelu>()) return {static_cast<float>(leaky->alpha), 0};
  if (const auto* elu = op.as<Elu>()) return {static_cast<float>(elu->alpha), 0};
  return {};
}

}  // namespace

std::optional<UnaryCall> unary_of(const Step& step) {
  if (step.kind != Step::Kind::op || step.inputs.size() != 1) return std::nullopt;
  const std::optional<Unary> function = find_unary(step.op.def()->name);
  if (!function) return std::nullopt;
  return UnaryCall{*function, parameters_of(step.op)};
}

}  // namespace tenon::cpu
