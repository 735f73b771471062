#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace tenon {

/// Listens, while it lives, to what backends prepare of weights (packing, uploads) in sessions that
/// its thread binds. The inner one of several listens.
class PrepareProgress {
 public:
  /// A weight's name, and how many of its bytes, as they were given, are ready; large weights come
  /// in pieces. What it throws ends the binding; weights that are ready stay so. It must not use
  /// the model that is being prepared.
  using Report = std::function<void(std::string_view weight, std::uint64_t bytes)>;

  explicit PrepareProgress(Report report);
  ~PrepareProgress();
  PrepareProgress(const PrepareProgress&) = delete;
  PrepareProgress& operator=(const PrepareProgress&) = delete;

  /// For backends, on the thread that binds.
  static void advance(std::string_view weight, std::uint64_t bytes);

 private:
  Report report_;
  PrepareProgress* outer_;
};

}  // namespace tenon
