// Any bytes as a safetensors file: a file or a typed error, the same however the bytes are reached.
#include "fuzz/memory_file.hpp"
#include "fuzz/targets.hpp"
#include "io/parsed_file.hpp"

namespace tenon::testing {

void fuzz_safetensors(Bytes bytes) {
  compare_access(bytes, [](const std::shared_ptr<const io::InputFile>& file) {
    const io::ParsedFile parsed = io::read_safetensors(file, {});
    return sum_of(parsed.metadata, parsed.tensors);
  });
}

}  // namespace tenon::testing
