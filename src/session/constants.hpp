// Where the constants of a plan come from: values that folding made, then the weights.
#pragma once

#include "session/plan.hpp"

#include <tenon/lowered.hpp>
#include <tenon/session.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tenon::sessions {

/// A weight as files have it: in CPU memory; of an object, what its class saves.
HostBuffer stored(const Buffer& weight);

/// Types of constants by name; `program` and `weights` (may be null) must outlive the function.
ConstantTypes constant_types(const Program& program, const WeightSet* weights);

/// The array of a constant, dense, of the slot's type: where its weight lies, or `on_host`, where
/// the CPU can address it; without data where its weight has none. Errc::bad_reference when nothing
/// has its name, Errc::shape_mismatch.
Buffer constant_array(const Program& program, const WeightSet& weights, const ConstantSlot& slot,
                      bool on_host);

/// The constants that a partition of these steps uses; all of theirs where `use` is none.
ConstantUse full_use(std::optional<ConstantUse> use, std::span<const Step> steps,
                     const Lowered& program);

/// By constant: whether a plan is bound with its own bytes, because a partition reads them or its
/// packed form is not there yet.
std::vector<bool> constants_needed(const Plan& plan, const PreparedCache& prepared);
/// By constant: whether partitions read its bytes.
std::vector<bool> constants_kept(const Plan& plan);

/// The constants, by their numbers in a constant part, that its output `output` is computed from.
std::vector<std::size_t> sources_of(const Lowered& constant_part, std::size_t output);

/// A weight that a plan needs, without data.
struct MissingConstant {
  std::size_t backend = 0;
  std::string weight;
  std::string key;  ///< under which its packed form was looked for; empty where it is read as it is

  /// "reads it", "has not packed it as '...'".
  std::string use() const;
};
std::optional<MissingConstant> missing_constant(const Plan& plan, const WeightSet& weights);

/// The weights of a plan that WeightSet::on_host() copies.
std::vector<PlanReport::Transfer> weight_copies(const Plan& plan, const WeightSet& weights);

}  // namespace tenon::sessions
