#include <tenon/error.hpp>
#include <tenon/npu/isa/owner_process.hpp>
#include <tenon/process_number.hpp>

#include <fmt/format.h>
#include <unistd.h>

namespace tenon::npu::isa {

OwnerProcess::OwnerProcess() noexcept : number_(process_number()), id_(::getpid()) {}

bool OwnerProcess::is_this() const noexcept { return process_number() == number_; }

void OwnerProcess::check(const std::string& what) const {
  if (is_this()) return;
  throw Error(
      Errc::forked_process, what,
      fmt::format("process {} opened it, and this is a fork of that process: open it here", id_));
}

}  // namespace tenon::npu::isa
