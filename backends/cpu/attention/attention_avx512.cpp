// The vectors first: the bodies are written in terms of them.
// clang-format off
#include "../simd/avx512.hpp"
#include "part_body.hpp"
#include "tile_body.hpp"
// clang-format on

namespace tenon::cpu::avx512 {

void attention_part(const AttentionJob& job, std::int64_t query, std::int64_t kv_head,
                    std::int64_t first, std::int64_t count, KeyRange keys,
                    AttentionPartial* partials) noexcept {
  run_part(job, query, kv_head, first, count, keys, partials);
}

void attention_tile(const AttentionJob& job, std::int64_t head, std::int64_t heads,
                    std::int64_t first, std::int64_t last, const KeyRange* ranges) noexcept {
  for (std::int64_t h = head; h < head + heads; ++h) run_tile(job, h, first, last, ranges);
}

}  // namespace tenon::cpu::avx512
