#include "unary_of.hpp"

#include <tenon/ops/activation.hpp>
#include <tenon/ops/clamp.hpp>
#include <tenon/ops/special.hpp>
#include <tenon/ops/unary.hpp>

namespace tenon::cpu {
namespace {

template <class Op>
UnaryParameters parameters_in(const OpInstance& op) {
  return parameters_of(*op.as<Op>());
}

/// In the order of Unary.
constexpr UnaryParameters (*parameters[])(const OpInstance& op){
#define CPU_UNARY(id, Struct) parameters_in<Struct>,
#include "unary.def"
#undef CPU_UNARY
};

}  // namespace

std::optional<UnaryCall> unary_of(const Step& step) {
  if (step.kind != Step::Kind::op || step.inputs.size() != 1) return std::nullopt;
  const std::optional<Unary> function = find_unary(step.op.def()->name);
  if (!function) return std::nullopt;
  return UnaryCall{*function, parameters[static_cast<std::size_t>(*function)](step.op)};
}

}  // namespace tenon::cpu
