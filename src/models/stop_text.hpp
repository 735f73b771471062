#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tenon::models {

/// Cuts a text that comes in pieces before the first of some stop texts. Holds back what may be the
/// beginning of one, so that nothing comes out that a later piece would take back.
class StopText {
 public:
  /// Errc::bad_argument for an empty stop text.
  explicit StopText(std::vector<std::string> stops);

  /// What is certain to stand before a stop text; nothing once one was found.
  std::string push(std::string_view text);
  /// What was held back: the text has ended.
  std::string finish();
  bool found() const noexcept { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace tenon::models
