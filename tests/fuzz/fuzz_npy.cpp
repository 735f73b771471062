// Any bytes as an npy file: an array or a typed error.
#include "fuzz_file.hpp"

#include <tenon/io/npy.hpp>

#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  const int descriptor = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (::write(descriptor, data, size) != static_cast<ssize_t>(size)) testing::fail("write failed");
  try {
    const HostBuffer array = io::read_npy("/proc/self/fd/" + std::to_string(descriptor));
    if (static_cast<std::uint64_t>(array.shape().bytes()) > size)
      testing::fail("bytes from nowhere");
  } catch (const Error& error) {
    if (error.code() == Errc::internal) testing::fail("an internal error");
  }
  ::close(descriptor);
  return 0;
}
