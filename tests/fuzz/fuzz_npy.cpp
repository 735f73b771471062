// Any bytes as an npy file: an array or a typed error.
#include "fuzz/memory_file.hpp"
#include "fuzz/targets.hpp"

#include <tenon/io/npy.hpp>

namespace tenon::testing {

void fuzz_npy(Bytes bytes) {
  const MemoryPath file(as_text(bytes));
  try {
    const HostBuffer array = io::read_npy(file.path());
    if (static_cast<std::uint64_t>(array.shape().bytes()) > bytes.size()) {
      fail("bytes from nowhere");
    }
  } catch (const Error& error) {
    if (error.code() == Errc::internal) fail("an internal error");
  }
}

}  // namespace tenon::testing
