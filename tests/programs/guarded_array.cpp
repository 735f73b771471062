#include "guarded_array.hpp"

#include <tenon/device.hpp>

#include <cstring>
#include <new>

#include <sys/mman.h>
#include <unistd.h>

namespace tenon::testing {

GuardedArrays::~GuardedArrays() {
  for (const Mapping& mapping : mappings_) munmap(mapping.begin, mapping.bytes);
}

Buffer GuardedArrays::room(const Shape& shape) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto size = static_cast<std::size_t>(shape.bytes());
  const std::size_t usable = (size + page - 1) / page * page + (size == 0 ? page : 0);
  void* const begin =
      mmap(nullptr, usable + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc();
  mappings_.push_back({begin, usable + page});
  auto* const end = static_cast<std::byte*>(begin) + usable;
  if (mprotect(end, page, PROT_NONE) != 0) throw std::bad_alloc();
  std::memset(begin, 0xA5, usable);
  return HostBuffer::borrow(end - size, shape).to_device(cpu_device());
}

Buffer GuardedArrays::copy(const HostBuffer& value) {
  Buffer array = room(value.shape().without_tags());
  const HostBuffer dense = value.contiguous();
  if (value.shape().bytes() > 0) {
    std::memcpy(array.host_view().data, dense.bytes(),
                static_cast<std::size_t>(value.shape().bytes()));
  }
  return array;
}

}  // namespace tenon::testing
