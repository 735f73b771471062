#pragma once

#include <tenon/error.hpp>
#include <tenon/process_number.hpp>

#include <string>

namespace tenon::cuda {

/// The process that opened a device. A driver does not work in its children.
class OwnerProcess {
 public:
  bool is_this() const noexcept { return process_number() == number_; }
  void check(const std::string& device) const {
    if (is_this()) return;
    throw Error(Errc::forked_process, device, "a parent of this process opened it: open it here");
  }

 private:
  std::uint32_t number_ = process_number();
};

}  // namespace tenon::cuda
