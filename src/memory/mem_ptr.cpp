#include <tenon/error.hpp>
#include <tenon/memory.hpp>

#include <cstdint>
#include <limits>

#include <fmt/format.h>

namespace tenon {
namespace {

[[noreturn]] void refuse(std::string message) {
  throw Error(Errc::bad_argument, "MemPtr", std::move(message));
}

/// address + bytes, or - bytes; refuses to wrap.
std::uint64_t moved(std::uint64_t address, std::int64_t bytes, bool forward) {
  const bool up = (bytes >= 0) == forward;
  const std::uint64_t distance =
      bytes < 0 ? 0 - static_cast<std::uint64_t>(bytes) : static_cast<std::uint64_t>(bytes);
  const std::uint64_t result = up ? address + distance : address - distance;
  if (up ? result < address : result > address) {
    refuse(fmt::format("{:#x} {} {} wraps around", address, up ? '+' : '-', distance));
  }
  return result;
}

std::int64_t distance(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t magnitude = a >= b ? a - b : b - a;
  if (magnitude > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    refuse(fmt::format("{:#x} and {:#x} are more than 2^63 - 1 bytes apart", a, b));
  }
  const auto bytes = static_cast<std::int64_t>(magnitude);
  return a >= b ? bytes : -bytes;
}

std::uint64_t number(const std::byte* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

MemPtr offset(const MemPtr& p, std::int64_t bytes, bool forward) {
  if (bytes == 0) return p;
  if (p.is_null()) refuse(fmt::format("an offset of {} from null", bytes));
  const auto cptr = [&] {
    return reinterpret_cast<void*>(
        static_cast<std::uintptr_t>(moved(number(p.cptr()), bytes, forward)));
  };
  switch (p.kind()) {
    case MemPtr::Kind::cptr:
      return MemPtr(cptr());
    case MemPtr::Kind::addr:
      return MemPtr(moved(p.addr(), bytes, forward));
    case MemPtr::Kind::both:
      break;
  }
  return {cptr(), moved(p.addr(), bytes, forward)};
}

}  // namespace

std::byte* MemPtr::cptr() const {
  if (!has_cptr()) refuse(to_string(*this) + " cannot be addressed by the CPU");
  return cptr_;
}

std::uint64_t MemPtr::addr() const {
  if (!has_addr()) refuse(to_string(*this) + " has no device address");
  return addr_;
}

MemPtr operator+(MemPtr p, std::int64_t bytes) { return offset(p, bytes, true); }
MemPtr operator-(MemPtr p, std::int64_t bytes) { return offset(p, bytes, false); }

std::int64_t operator-(MemPtr a, MemPtr b) {
  if (a.kind_ != b.kind_) {
    refuse(fmt::format("{} and {} are of different kinds", to_string(a), to_string(b)));
  }
  if (a.kind_ == MemPtr::Kind::addr) return distance(a.addr_, b.addr_);
  const std::int64_t bytes = distance(number(a.cptr_), number(b.cptr_));
  if (a.kind_ == MemPtr::Kind::both && distance(a.addr_, b.addr_) != bytes) {
    refuse(fmt::format("{} and {} lie in different mappings", to_string(a), to_string(b)));
  }
  return bytes;
}

std::string to_string(const MemPtr& pointer) {
  switch (pointer.kind()) {
    case MemPtr::Kind::cptr:
      return fmt::format("cptr {:#x}", number(pointer.cptr()));
    case MemPtr::Kind::addr:
      return fmt::format("addr {:#x}", pointer.addr());
    case MemPtr::Kind::both:
      break;
  }
  return fmt::format("both {:#x} / {:#x}", number(pointer.cptr()), pointer.addr());
}

}  // namespace tenon
