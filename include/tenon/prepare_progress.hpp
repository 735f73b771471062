#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace tenon {

/// Reports, while it exists, the progress of preparing weights (packing, uploads) in sessions that
/// this thread binds. If nested, the innermost reports.
class PrepareProgress {
 public:
  /// Called with a weight's name and how many more of its original bytes are ready; large weights
  /// come in pieces. An exception ends the binding; finished weights stay prepared. Must not use
  /// the model that is being prepared.
  using Report = std::function<void(std::string_view weight, std::uint64_t bytes)>;

  explicit PrepareProgress(Report report);
  ~PrepareProgress();
  PrepareProgress(const PrepareProgress&) = delete;
  PrepareProgress& operator=(const PrepareProgress&) = delete;

  /// Called by backends, on the thread that binds.
  static void advance(std::string_view weight, std::uint64_t bytes);

 private:
  Report report_;
  PrepareProgress* outer_;
};

}  // namespace tenon
