// Convolutions with the activation behind them, where a library computes both in one call.
#pragma once

#include "driver/routines.hpp"
#include "plan/launch.hpp"

#include <tenon/lowered.hpp>
#include <tenon/op.hpp>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {
namespace cuda {

/// The steps that one ActivatedConvolution stands for.
struct ConvolutionPair {
  Step convolution;
  Activation activation;
};

}  // namespace cuda

/// Made by pair_activations, never by a program; no op of the registry. Inputs are those of the
/// convolution, the output is the activation's.
struct ActivatedConvolution {
  static constexpr std::string_view name = "activated_convolution";
  static constexpr int min_inputs = 2, max_inputs = 3;
  static constexpr OpTraits traits{};
  const cuda::ConvolutionPair* pair = nullptr;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(ActivatedConvolution);

namespace cuda {

/// Merges convolutions and activations that nothing else reads between, where the library takes
/// both. The ops of the merged steps refer to the pairs returned. `own`: see for_each_body.
std::vector<std::unique_ptr<const ConvolutionPair>> pair_activations(const Lowered& program,
                                                                     std::span<const Step> steps,
                                                                     std::vector<Step>& own,
                                                                     const PlanOptions& options);

}  // namespace cuda
}  // namespace tenon
