#pragma once

#include <tenon/buffer.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/models/decoder.hpp>
#include <tenon/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tenon::models {

/// What one layer has written of one array of a cache: of keys and values the rows of the first
/// positions of each head, of states all.
struct UsedPart {
  std::string name;  ///< such as "layers.3.attention.keys"
  Shape shape;       ///< of the part; elements of block types are bytes (u8)
  const Buffer* array = nullptr;
  // The part's bytes are `runs` runs of `run_bytes`, `stride_bytes` apart, from `offset_bytes` of the
  // array on.
  std::uint64_t offset_bytes = 0;
  std::uint64_t runs = 0;
  std::uint64_t run_bytes = 0;
  std::uint64_t stride_bytes = 0;
};

/// The parts of a cache of `positions` positions, above 0, of one sequence. Parts that a layer does
/// not have are not among them: their memory may never have been written.
std::vector<UsedPart> used_parts(const DecoderConfig& config, const DecoderCache<Buffer>& cache,
                                 std::int64_t positions);

/// Copies the parts of one cache to the same ones of another in the same region. Waits for work that
/// fills them.
void copy_parts(const std::vector<UsedPart>& from, const std::vector<UsedPart>& to);

/// A part as an array in CPU memory: a strided view of the cache where the CPU can address it, which
/// must live as long.
HostBuffer on_host(const UsedPart& part);

/// Fills a part with dense bytes.
void fill(const UsedPart& part, std::span<const std::byte> bytes);

}  // namespace tenon::models
