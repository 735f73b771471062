// libFuzzer's entry to the target that the build names.
#include "fuzz/targets.hpp"

#include <cstddef>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tenon::testing::TENON_FUZZ_TARGET({data, size});
  return 0;
}
