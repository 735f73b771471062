// Arrays that end at a guard page: a read or write beyond their end kills the process.
#pragma once

#include <tenon/buffer.hpp>
#include <tenon/host_buffer.hpp>

#include <cstddef>
#include <vector>

namespace tenon::testing {

/// Owns the memory of arrays; they must not outlive it.
class GuardedArrays {
 public:
  GuardedArrays() = default;
  ~GuardedArrays();
  GuardedArrays(const GuardedArrays&) = delete;
  GuardedArrays& operator=(const GuardedArrays&) = delete;

  /// A dense copy of `value`, and an array of the shape that holds anything.
  Buffer copy(const HostBuffer& value);
  Buffer room(const Shape& shape);

 private:
  struct Mapping {
    void* begin;
    std::size_t bytes;
  };
  std::vector<Mapping> mappings_;
};

}  // namespace tenon::testing
