// A plan as a snapshot has it: what was decided, and what backends saved.
#pragma once

#include "session/manifest.hpp"
#include "session/plan.hpp"

#include <tenon/session.hpp>
#include <tenon/snapshot.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon::sessions {

class SavedPlan {
 public:
  /// `saved`: entry `number` of the manifest's plans. The arguments outlive this object.
  SavedPlan(const Snapshot& snapshot, const Manifest& manifest, const Json& saved,
            std::size_t number, std::span<const BackendPtr> backends,
            std::shared_ptr<const WeightSet> weights);

  std::vector<Shape> inputs() const;
  bool is_merged() const;
  /// Makes the plan, as it was where backends can: partitions that they cannot restore are compiled
  /// again, which is logged, if their weights have data. Errc::incompatible, naming what differs,
  /// otherwise. It refers to this object.
  PlanMaker maker();
  /// Errc::incompatible where the plan that was made lacks something that only its snapshot could
  /// have. Logs how many weights have to be packed again.
  void check(const Plan& plan) const;

 private:
  Chooser chooser(const Lowered& program) const;
  std::unique_ptr<Partition> compile(std::size_t backend, const Lowered& program,
                                     std::span<const Step> together, std::span<const Step> steps);
  const Json& next_part(std::size_t backend, std::size_t steps);
  std::unique_ptr<Partition> restore(std::size_t backend, const Lowered& program,
                                     std::span<const Step> steps, const Json& part,
                                     const std::string& section);
  void require_weights(const Lowered& program, std::span<const Step> steps,
                       const std::string& section, const std::string& why) const;
  void explain(std::vector<PlanReport::Fallback>& fallbacks) const;
  std::string differences(std::size_t backend) const;

  const Snapshot& snapshot_;
  const Manifest& manifest_;
  const Json& saved_;
  std::size_t number_;
  std::span<const BackendPtr> backends_;
  std::shared_ptr<const WeightSet> weights_;
  std::size_t next_ = 0;  // of the parts
};

}  // namespace tenon::sessions
