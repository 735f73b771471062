#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/memory.hpp>

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace tenon {

/// The owner of a HostBuffer's bytes: allocated memory, a chunk, a keeper, or the caller.
struct HostBuffer::Storage {
  struct Free {
    void operator()(void* bytes) const noexcept { std::free(bytes); }
  };
  Ownership ownership = Ownership::owned;
  std::unique_ptr<void, Free> allocation;
  MemChunk chunk;
  std::shared_ptr<const void> keeper;
  std::shared_ptr<const io::InputFile> file;
};

/// The deleter of a chunk that HostBuffer::to_device wraps around an array's bytes. Buffer::to_host
/// finds the array's own storage in it, and with it whether the bytes may be written.
struct HostBuffer::KeepStorage {
  std::shared_ptr<const Storage> storage;
  void operator()(const MemPtr&) noexcept { storage.reset(); }
};

}  // namespace tenon
