// Any bytes as a gguf file: a file or a typed error, the same however the bytes are reached.
#include "fuzz/memory_file.hpp"
#include "io/parsed_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  testing::compare_access({data, size}, [](const std::shared_ptr<const io::InputFile>& file) {
    const io::ParsedFile parsed = io::read_gguf(file, {});
    return testing::sum_of(parsed.metadata, parsed.tensors);
  });
  return 0;
}
