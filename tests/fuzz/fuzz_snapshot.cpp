// Any bytes as a snapshot's frame: a typed error, or sections that can be read.
#include "fuzz/memory_file.hpp"
#include "fuzz/targets.hpp"

#include <tenon/snapshot.hpp>

#include <string_view>

namespace tenon::testing {

void fuzz_snapshot(Bytes bytes) {
  const MemoryPath file(as_text(bytes));
  for (const io::Access access : {io::Access::map, io::Access::read}) {
    for (const bool verify : {true, false}) {
      try {
        const Snapshot snapshot =
            Snapshot::open(file.path(), {.access = access, .verify_sections = verify});
        for (const Snapshot::Section& section : snapshot.sections()) {
          if (snapshot.bytes(section.name).size() != section.size_bytes) {
            fail("another size");
          }
        }
      } catch (const Error& error) {
        if (error.code() == Errc::internal) fail("an internal error");
      }
    }
  }
}

}  // namespace tenon::testing
