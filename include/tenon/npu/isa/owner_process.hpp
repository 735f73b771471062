#pragma once

#include <cstdint>
#include <string>

namespace tenon::npu::isa {

/// The process that opened a device. A child of fork() has a copy of what the parent knew of it,
/// none of the parent's threads, and sockets and registers that the parent goes on using.
class OwnerProcess {
 public:
  OwnerProcess() noexcept;

  /// False in a child of that process. Costs a load.
  bool is_this() const noexcept;
  /// Errc::forked_process naming `what` in a child of that process.
  void check(const std::string& what) const;

 private:
  std::uint32_t number_;  // process_number()
  int id_;                // for messages
};

}  // namespace tenon::npu::isa
