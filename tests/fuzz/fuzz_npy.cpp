// Any bytes as an npy file: an array or a typed error.
#include "fuzz/memory_file.hpp"

#include <tenon/io/npy.hpp>

#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  const testing::MemoryPath file({reinterpret_cast<const char*>(data), size});
  try {
    const HostBuffer array = io::read_npy(file.path());
    if (static_cast<std::uint64_t>(array.shape().bytes()) > size) {
      testing::fail("bytes from nowhere");
    }
  } catch (const Error& error) {
    if (error.code() == Errc::internal) testing::fail("an internal error");
  }
  return 0;
}
