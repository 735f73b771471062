#pragma once

#include <chrono>
#include <optional>
#include <stop_token>
#include <string_view>

namespace tenon {

/// Ends long work early: when asked to, or at a point in time.
struct Interrupt {
  std::stop_token cancel{};
  std::optional<std::chrono::steady_clock::time_point> deadline{};

  /// Whether it can ever end anything.
  bool is_set() const noexcept { return cancel.stop_possible() || deadline.has_value(); }
  /// Whether the work is to end now; from then on always.
  bool is_due() const noexcept {
    return cancel.stop_requested() || (deadline && std::chrono::steady_clock::now() >= *deadline);
  }
  /// Throws Errc::cancelled after a stop request, and Errc::timeout past the deadline.
  void check(std::string_view where) const;
};

}  // namespace tenon
