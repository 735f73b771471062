// Rope of queries and keys and the updates of the caches behind it, as one step.
#pragma once

#include <tenon/lowered.hpp>
#include <tenon/op.hpp>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {
namespace cuda {

/// The steps that one HeadsIntoCache stands for: `key_cache` stores what `keys` gives.
struct HeadSteps {
  Step queries, keys, key_cache, value_cache;
};

}  // namespace cuda

/// Made by merge_heads, never by a program; no op of the registry. Inputs are those of all steps, the
/// output is the queries'.
struct HeadsIntoCache {
  static constexpr std::string_view name = "heads_into_cache";
  static constexpr int min_inputs = 2, max_inputs = 16;
  static constexpr OpTraits traits{};
  const cuda::HeadSteps* steps = nullptr;
  static constexpr FieldList<> fields{};

  Shape infer(std::span<const Shape> in) const;
};
TENON_DECLARE_OP(HeadsIntoCache);

namespace cuda {

/// Merges such steps where they are in a row, nothing else reads the rotated keys, and caches of plain
/// types are updated in place. It must be the last pass over `own`: a merged step writes more than its
/// output. The ops of the merged steps refer to what is returned. `own`: see for_each_body.
std::vector<std::unique_ptr<const HeadSteps>> merge_heads(const Lowered& program,
                                                          std::span<const Step> steps,
                                                          std::vector<Step>& own);

}  // namespace cuda
}  // namespace tenon
