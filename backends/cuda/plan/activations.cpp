#include "plan/activations.hpp"

#include "lower/memory_access.hpp"
#include "lower/value_uses.hpp"
#include "plan/libraries.hpp"
#include "plan/planners.hpp"

#include <tenon/error.hpp>
#include <tenon/ops/activation.hpp>
#include <tenon/ops/conv2d.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace tenon {

TENON_DEFINE_OP(activated_convolution, ActivatedConvolution);

Shape ActivatedConvolution::infer(std::span<const Shape>) const {
  return pair->convolution.output.shape;
}

namespace cuda {
namespace {

/// Of a step that applies one. In an exact session only one that does not round.
std::optional<Activation> activation_of(const Step& step, bool is_exact) {
  if (step.kind != Step::Kind::op) return std::nullopt;
  if (step.op.as<Relu>() != nullptr) return Activation::relu;
  if (is_exact) return std::nullopt;
  if (step.op.as<Sigmoid>() != nullptr) return Activation::sigmoid;
  if (step.op.as<Tanh>() != nullptr) return Activation::tanh;
  if (step.op.as<Silu>() != nullptr) return Activation::silu;
  if (step.op.as<Gelu>() != nullptr) return Activation::gelu;
  if (step.op.as<GeluTanh>() != nullptr) return Activation::gelu_tanh;
  return std::nullopt;
}

/// The convolution `first` with the output of `second`, which activates it, as one step; nothing
/// where they cannot be one. `value`: what is known of the result of `first`.
std::optional<ConvolutionPair> pair_of(const Step& first, const Step& second,
                                       const lowering::WrittenValue& value,
                                       const PlanOptions& options) {
  if (first.kind != Step::Kind::op || first.op.as<Conv2d>() == nullptr) return std::nullopt;
  const std::optional<Activation> activation = activation_of(second, options.is_exact);
  if (!activation || !(second.inputs[0] == first.output)) return std::nullopt;
  if (value.uses.size() != 1 || !value.is_only_in_uses) return std::nullopt;
  Step whole = first;
  whole.output = second.output;
  whole.value = second.value;
  const bool is_in_place = std::ranges::any_of(
      whole.inputs, [&](const Operand& input) { return lowering::overlap(input, whole.output); });
  if (is_in_place || !takes_activation(whole, *activation, options)) return std::nullopt;
  return ConvolutionPair{std::move(whole), *activation};
}

}  // namespace

std::vector<std::unique_ptr<const ConvolutionPair>> pair_activations(const Lowered& program,
                                                                     std::span<const Step> steps,
                                                                     std::vector<Step>& own,
                                                                     const PlanOptions& options) {
  std::vector<std::unique_ptr<const ConvolutionPair>> pairs;
  if (options.libraries == nullptr) return pairs;
  lowering::for_each_body(
      program, steps, own, [&](std::vector<Step>& body, std::span<const Operand> leaves) {
        const auto values = lowering::trace_values(body, leaves);
        std::vector<Step> merged;
        for (std::size_t i = 0; i < body.size(); ++i) {
          std::optional<ConvolutionPair> pair;
          if (i + 1 < body.size()) pair = pair_of(body[i], body[i + 1], values[i], options);
          if (!pair) {
            merged.push_back(std::move(body[i]));
            continue;
          }
          pairs.push_back(std::make_unique<const ConvolutionPair>(std::move(*pair)));
          Step whole = pairs.back()->convolution;
          whole.op = OpInstance(ActivatedConvolution{.pair = pairs.back().get()});
          merged.push_back(std::move(whole));
          ++i;
        }
        body = std::move(merged);
      });
  return pairs;
}

Refusal plan_activated_convolution(const Step& step, Emitter* out) {
  if (out == nullptr) return std::nullopt;
  const ConvolutionPair& pair = *step.op.as<ActivatedConvolution>()->pair;
  if (!plan_library_convolution(pair.convolution, *out, pair.activation)) {
    throw Error(Errc::internal, step.value, "cuda: a library refuses what it has taken");
  }
  out->count_activation();
  return std::nullopt;
}

}  // namespace cuda
}  // namespace tenon
