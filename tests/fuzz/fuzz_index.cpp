// Any bytes as a safetensors index: every shard it names stays in its folder.
#include "fuzz/memory_file.hpp"
#include "fuzz/targets.hpp"
#include "io/parsed_file.hpp"

#include <filesystem>

namespace tenon::testing {

void fuzz_index(Bytes bytes) {
  compare_access(bytes, [](const std::shared_ptr<const io::InputFile>& file) {
    const io::ShardIndex index = io::read_safetensors_index(file, {});
    const std::filesystem::path folder = "/folder";
    for (const io::ShardIndex::Shard& shard : index.shards) {
      const auto path = (folder / shard.file_name).lexically_normal();
      if (!path.string().starts_with("/folder/")) fail("a path outside the folder");
    }
    return index.shards.size();
  });
}

}  // namespace tenon::testing
