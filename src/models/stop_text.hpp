#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tenon::models {

/// Truncates a text that comes in pieces at the first of some stop texts. Holds back text that may
/// be the beginning of one.
class StopText {
 public:
  /// Errc::bad_argument for an empty stop text.
  explicit StopText(std::vector<std::string> stops);

  /// The text that is certain to be before a stop text; nothing once one was found.
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
