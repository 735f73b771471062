// Any bytes as a snapshot's frame: a typed error, or sections that can be read.
#include "fuzz/memory_file.hpp"

#include <tenon/snapshot.hpp>

#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  const testing::MemoryPath file({reinterpret_cast<const char*>(data), size});
  for (const io::Access access : {io::Access::map, io::Access::read}) {
    for (const bool verify : {true, false}) {
      try {
        const Snapshot snapshot =
            Snapshot::open(file.path(), {.access = access, .verify_sections = verify});
        for (const Snapshot::Section& section : snapshot.sections()) {
          if (snapshot.bytes(section.name).size() != section.size_bytes) {
            testing::fail("another size");
          }
        }
      } catch (const Error& error) {
        if (error.code() == Errc::internal) testing::fail("an internal error");
      }
    }
  }
  return 0;
}
