#include <tenon/error.hpp>
#include <tenon/memory.hpp>

#include <fmt/format.h>

namespace tenon {

RegRegion::RegRegion(std::string name, std::uint64_t base, std::uint64_t size_bytes)
    : name_(std::move(name)), base_(base), size_(size_bytes) {
  if (base + size_bytes < base) {
    throw Error(Errc::bad_argument, name_,
                fmt::format("registers from {:#x} on, {} bytes: beyond the last address", base,
                            size_bytes));
  }
}

std::uint64_t RegRegion::offset_of(std::uint64_t address, bool relative) const {
  const bool below = !relative && address < base_;
  const std::uint64_t offset = relative || below ? address : address - base_;
  if (below || (size_ > 0 && offset >= size_)) {
    throw Error(Errc::out_of_range, name_,
                fmt::format("no register at {}{:#x}: there are {} bytes from {:#x} on",
                            relative ? "offset " : "", address, size_, base_));
  }
  return offset;
}

}  // namespace tenon
