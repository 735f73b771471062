// A backend whose runs are looked at: what they write beside their results, and whether they end.
#pragma once

#include <tenon/backend.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>

namespace tenon::testkit {

enum class Watch {
  results,    ///< results lie between painted bytes, which have to stay
  interrupts  ///< runs of several steps get an interrupt that is due, and have to throw
};

/// Passes everything but what snapshots need on to a backend.
class WatchedBackend final : public Backend {
 public:
  WatchedBackend(BackendPtr backend, Watch watch);
  ~WatchedBackend() override;

  std::string_view name() const noexcept override { return backend_->name(); }
  MemRegion& region() const override { return backend_->region(); }
  std::optional<std::string> refuses(const Step& step) const override {
    return backend_->refuses(step);
  }
  std::unique_ptr<Partition> compile(const Lowered& program,
                                     std::span<const Step> steps) const override;
  bool wants_unrolled() const noexcept override { return backend_->wants_unrolled(); }
  std::map<std::string, std::string> properties() const override { return backend_->properties(); }

  /// What runs did wrong since the last call, in words.
  std::optional<std::string> take_fault() const;

 private:
  struct Faults;
  class Watched;
  class Bound;

  BackendPtr backend_;
  Watch watch_;
  std::shared_ptr<Faults> faults_;
};

}  // namespace tenon::testkit
