#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

namespace tenon::detail {

/// A class's name as a template argument.
template <std::size_t Length>
struct ClassName {
  consteval ClassName(const char (&name)[Length]) {  // NOLINT(google-explicit-constructor)
    std::copy_n(name, Length, text);
  }
  char text[Length]{};
};

/// Throws Errc::call_order: a moved-from object of this class was used.
[[noreturn]] void throw_moved_from(std::string_view class_name);

/// The state that copies of a handle share. Access through a moved-from handle throws
/// Errc::call_order.
template <class State, ClassName owner>
class Held {
 public:
  Held() noexcept = default;
  Held(std::shared_ptr<State> state) noexcept  // NOLINT(google-explicit-constructor)
      : state_(std::move(state)) {}

  State& operator*() const { return *shared(); }
  State* operator->() const { return shared().get(); }
  const std::shared_ptr<State>& shared() const {
    if (state_ == nullptr) throw_moved_from(owner.text);
    return state_;
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace tenon::detail
