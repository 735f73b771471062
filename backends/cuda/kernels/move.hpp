// Kernels that move elements, or make them from their index.
#pragma once

#include "kernels/block_sizes.hpp"
#include "kernels/eights.hpp"
#include "kernels/pointwise.hpp"
#include "kernels/weights.hpp"
#include "ops/philox.hpp"

#include <cmath>
#include <cstdint>

namespace tenon::cuda {

TENON_DEVICE Address place_of(const Array& array, const Index& at, int rank) {
  return array.data + static_cast<Address>(offset_of(at, array.steps, rank));
}

TENON_DEVICE void copy_elements(const Thread& thread, const CopyArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    copy_bytes(place_of(args.y, at, args.axes.rank), place_of(args.x, at, args.axes.rank),
               args.bytes);
  }
}

TENON_DEVICE void gather_elements(const Thread& thread, const GatherArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const std::int64_t picked =
        load_integer(args.index.dtype, place_of(args.index, at, args.axes.rank));
    if (picked < 0 || picked >= args.limit) {
      report(args.reporter, picked, args.limit);
      continue;
    }
    const auto moved_by = static_cast<Address>(picked * args.indexed_step);
    copy_bytes(place_of(args.y, at, args.axes.rank) + (args.puts ? moved_by : 0),
               place_of(args.x, at, args.axes.rank) + (args.puts ? 0 : moved_by), args.bytes);
  }
}

/// Eight elements of a row per thread.
template <class Type>
TENON_DEVICE void embed(const Thread& thread, const EmbeddingArgs& args) {
  const std::uint32_t eights = (args.depth + 7) / 8, count = args.axes.count * eights;
  for (std::uint32_t i = first_of(thread); i < count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i / eights);
    const std::uint32_t k = i % eights * 8;
    const std::int64_t id =
        args.ids.data == 0 ? i / eights
                           : load_integer(args.ids.dtype, place_of(args.ids, at, args.axes.rank));
    if (id < 0 || id >= args.rows) {
      report(args.reporter, id, args.rows);
      continue;
    }
    float eight[8];
    Row<Type>::load_eight(args.table + static_cast<Address>(id * args.row_step), k, args.depth,
                          eight);
    const Address y = place_of(args.y, at, args.axes.rank);
    if (args.y.dtype == DType::bf16 && args.y_step == 2 && k + 8 <= args.depth &&
        (y + 2 * k) % sizeof(Words4) == 0) {
      store_bfloat16(y + 2 * k, eight);
      continue;
    }
    for (std::uint32_t j = 0; j < 8 && k + j < args.depth; ++j) {
      store_real(args.y.dtype, y + static_cast<Address>((k + j) * args.y_step), eight[j]);
    }
  }
}

/// Pad::source_of.
TENON_DEVICE std::int64_t source_of(int mode, std::int64_t place, std::int64_t size) {
  if (place >= 0 && place < size) return place;
  if (mode == 2) return place < 0 ? -place : 2 * (size - 1) - place;
  if (mode == 3) return place < 0 ? place + size : place - size;
  return place < 0 ? 0 : size - 1;
}

TENON_DEVICE void pad_elements(const Thread& thread, const PadArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const Address to = place_of(args.y, at, args.axes.rank);
    std::int64_t from = 0;
    bool is_inside = true;
    for (int axis = 0; axis < max_axes; ++axis) {
      if (axis >= args.axes.rank) continue;
      const std::int64_t place = std::int64_t{at.at[axis]} - args.before[axis];
      is_inside = is_inside && place >= 0 && place < args.sizes[axis];
      from += source_of(args.mode, place, args.sizes[axis]) * args.x.steps.bytes[axis];
    }
    if (is_inside || args.mode != 0) {
      copy_bytes(to, args.x.data + static_cast<Address>(from), args.bytes);
    } else {
      for (std::uint32_t byte = 0; byte < args.bytes; ++byte) {
        *global<std::uint8_t>(to + byte) = args.value[byte];
      }
    }
  }
}

TENON_DEVICE void iota_elements(const Thread& thread, const IotaArgs& args) {
  const bool is_real =
      args.y.dtype == DType::f32 || args.y.dtype == DType::f16 || args.y.dtype == DType::bf16;
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const std::int64_t value = args.start + i * args.step;
    const std::int64_t to = i * args.y.steps.bytes[0];
    if (is_real) {
      store_as(float_of_integer(args.y.dtype, value), args.y, to);
    } else {
      store_as(value, args.y, to);
    }
  }
}

/// Four elements per thread: a block of Philox4x32-10.
TENON_DEVICE void randomise(const Thread& thread, const RandomArgs& args) {
  constexpr std::uint64_t multipliers[] = {philox::multipliers[0], philox::multipliers[1]};
  constexpr std::uint32_t key_steps[] = {philox::key_steps[0], philox::key_steps[1]};
  const std::int64_t first = args.first.data == 0 ? 0 : load_as(std::int64_t(), args.first, 0);
  for (std::uint32_t four = first_of(thread); four < (args.axes.count + 3) / 4;
       four += stride_of(thread)) {
    const std::uint64_t low = static_cast<std::uint64_t>(first) + four;
    std::uint32_t words[4] = {
        static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
        static_cast<std::uint32_t>(args.stream), static_cast<std::uint32_t>(args.stream >> 32)};
    std::uint32_t keys[2];
    for (int i = 0; i < 2; ++i) {
      keys[i] = static_cast<std::uint32_t>(
          load_as(std::int64_t(), args.key, i * args.key.steps.bytes[0]));
    }
    for (int round = 0; round < philox::rounds; ++round) {
      const std::uint64_t p = multipliers[0] * words[0], q = multipliers[1] * words[2];
      words[0] = static_cast<std::uint32_t>(q >> 32) ^ words[1] ^ keys[0];
      words[1] = static_cast<std::uint32_t>(q);
      words[2] = static_cast<std::uint32_t>(p >> 32) ^ words[3] ^ keys[1];
      words[3] = static_cast<std::uint32_t>(p);
      for (int i = 0; i < 2; ++i) keys[i] += key_steps[i];
    }
    for (std::uint32_t i = 0; i < 4 && 4 * four + i < args.axes.count; ++i) {
      const Address to = place_of(args.y, index_of(args.axes, 4 * four + i), args.axes.rank);
      *global<std::uint32_t>(to) = words[i];
    }
  }
}

TENON_DEVICE void fill_elements(const Thread& thread, const FillArgs& args) {
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Address to = place_of(args.y, index_of(args.axes, i), args.axes.rank);
    for (std::uint32_t byte = 0; byte < args.bytes; ++byte) {
      *global<std::uint8_t>(to + byte) = args.value[byte];
    }
  }
}

/// What rotates a pair of elements, of every head of a step.
struct Turn {
  float cosine, sine;
};
TENON_DEVICE Turn turn_of(const RopeArgs& args, std::uint32_t b, std::uint32_t s,
                          std::uint32_t pair) {
  std::int64_t position_at = b * args.position_steps[0] + s * args.position_steps[2];
  if (args.position_steps[1] != 0) {
    position_at += global<const std::int32_t>(args.sections)[pair] * args.position_steps[1];
  }
  const auto position = static_cast<double>(
      load_integer(DType::i32, args.positions + static_cast<Address>(position_at)));
  double frequency = global<const double>(args.frequencies)[pair];
  if (args.factors != 0) {
    const auto factor_at = static_cast<Address>(pair * args.factor_step);
    frequency /= static_cast<double>(*global<const float>(args.factors + factor_at));
  }
  // Turns are taken off in double, so that far positions are as accurate as near ones.
  const double angle = position * frequency;
  constexpr double turn = 6.283185307179586476925286766559;
  const auto rest = static_cast<float>(angle - turn * rint(angle / turn));
  return {args.magnitude * cosf(rest), args.magnitude * sinf(rest)};
}

/// What a thread does of a rope: a pair of elements, or one that passes through, of some heads.
struct RopePart {
  std::uint32_t b, s, first_head, heads, item;
};
TENON_DEVICE RopePart rope_part(const RopeArgs& args, std::uint32_t i) {
  const std::uint32_t items = args.depth - args.pairs, all = args.heads.sizes[2];
  const std::uint32_t groups = (all + rope_heads - 1) / rope_heads;
  RopePart part{};
  part.item = i % items;
  i /= items;
  part.first_head = i % groups * rope_heads;
  i /= groups;
  part.s = i % args.heads.sizes[1];
  part.b = i / args.heads.sizes[1];
  const std::uint32_t left = all - part.first_head;
  part.heads = left < rope_heads ? left : rope_heads;
  return part;
}
TENON_DEVICE std::uint32_t rope_parts(const RopeArgs& args) {
  return args.heads.sizes[0] * args.heads.sizes[1] *
         ((args.heads.sizes[2] + rope_heads - 1) / rope_heads) * (args.depth - args.pairs);
}

/// Part i; store(part, head, d, value) takes what it gives.
template <class Store>
TENON_DEVICE void rotate_part(const RopeArgs& args, std::uint32_t i, const Store& store) {
  const RopePart part = rope_part(args, i);
  const bool is_pair = part.item < args.pairs;
  std::uint32_t first = part.item + args.pairs, second = first;
  if (is_pair) {
    first = args.is_interleaved ? 2 * part.item : part.item;
    second = args.is_interleaved ? 2 * part.item + 1 : part.item + args.pairs;
  }
  const Address x = args.x.data + static_cast<Address>(part.b * args.x.steps.bytes[0] +
                                                       part.s * args.x.steps.bytes[1]);
  const auto element = [&](std::uint32_t head, std::uint32_t d) {
    const std::int64_t at = (part.first_head + head) * args.x.steps.bytes[2] + d * args.x_step;
    return load_real(args.x.dtype, x + static_cast<Address>(at));
  };
  float a[rope_heads], b[rope_heads];
  TENON_UNROLL
  for (std::uint32_t head = 0; head < rope_heads; ++head) {
    if (head >= part.heads) continue;
    a[head] = element(head, first);
    b[head] = is_pair ? element(head, second) : 0.0f;
  }
  Turn turn{1, 0};
  if (is_pair) turn = turn_of(args, part.b, part.s, part.item);
  TENON_UNROLL
  for (std::uint32_t head = 0; head < rope_heads; ++head) {
    if (head >= part.heads) continue;
    const std::uint32_t h = part.first_head + head;
    if (!is_pair) {
      store(part, h, first, a[head]);
      continue;
    }
    store(part, h, first, a[head] * turn.cosine - b[head] * turn.sine);
    store(part, h, second, b[head] * turn.cosine + a[head] * turn.sine);
  }
}

TENON_DEVICE void rotate_into_output(const RopeArgs& args, std::uint32_t i) {
  rotate_part(args, i, [&](const RopePart& part, std::uint32_t h, std::uint32_t d, float value) {
    const std::int64_t(&steps)[max_axes] = args.y.steps.bytes;
    const std::int64_t at = part.b * steps[0] + part.s * steps[1] + h * steps[2] + d * args.y_step;
    store_real(args.y.dtype, args.y.data + static_cast<Address>(at), value);
  });
}

TENON_DEVICE void rotate(const Thread& thread, const RopeArgs& args) {
  const std::uint32_t parts = rope_parts(args);
  for (std::uint32_t i = first_of(thread); i < parts; i += stride_of(thread)) {
    rotate_into_output(args, i);
  }
}

/// Whether everything that this launch writes is in range: nothing is written otherwise.
TENON_DEVICE bool is_in_range(const CacheArgs& args) {
  const std::int64_t layer = *global<const std::int64_t>(args.layer);
  if (layer < 0 || layer >= args.layers) {
    report(args.reporter, layer, args.layers);
    return false;
  }
  const std::int64_t steps = args.axes.sizes[1];
  const std::int64_t capacity = std::int64_t{args.page_size} * args.pages_per_row;
  for (std::uint32_t b = 0; b < args.axes.sizes[0]; ++b) {
    const std::int64_t p =
        load_integer(DType::i32, args.position + static_cast<Address>(b * args.position_step));
    if (p < 0 || p + steps > capacity) {
      report(args.reporter, p, capacity - steps + 1);
      return false;
    }
    for (std::int64_t page = p / args.page_size;
         args.table != 0 && steps > 0 && page <= (p + steps - 1) / args.page_size; ++page) {
      const std::int64_t at = b * args.table_steps[0] + page * args.table_steps[1];
      const std::int64_t entry = load_integer(DType::i32, args.table + static_cast<Address>(at));
      if (entry < 0 || entry >= args.rows_or_pages) {
        report(args.reporter, entry, args.rows_or_pages);
        return false;
      }
    }
  }
  return true;
}

TENON_DEVICE Address cache_row(const CacheArgs& args, std::uint32_t b, std::uint32_t s,
                               std::uint32_t h) {
  const std::int64_t layer = *global<const std::int64_t>(args.layer);
  std::int64_t place =
      load_integer(DType::i32, args.position + static_cast<Address>(b * args.position_step)) + s;
  std::int64_t row = b;
  if (args.table != 0) {
    const std::int64_t at = b * args.table_steps[0] + place / args.page_size * args.table_steps[1];
    row = load_integer(DType::i32, args.table + static_cast<Address>(at));
    place %= args.page_size;
  }
  const std::int64_t(&steps)[max_axes] = args.cache.steps.bytes;
  return args.cache.data +
         static_cast<Address>(layer * steps[0] + row * steps[1] + h * steps[2] + place * steps[3]);
}

TENON_DEVICE std::uint32_t append_parts(const CacheArgs& args) {
  return args.axes.sizes[0] * args.axes.sizes[1] * args.axes.sizes[2] *
         ((args.axes.sizes[3] + 7) / 8);
}
/// Eight elements of a head, or what its end has.
TENON_DEVICE void append_part(const CacheArgs& args, std::uint32_t i) {
  const std::uint32_t depth = args.axes.sizes[3], eights = (depth + 7) / 8;
  const std::uint32_t first = i % eights * 8;
  i /= eights;
  const std::uint32_t h = i % args.axes.sizes[2];
  i /= args.axes.sizes[2];
  const std::uint32_t s = i % args.axes.sizes[1], b = i / args.axes.sizes[1];
  const std::int64_t(&steps)[max_axes] = args.x.steps.bytes;
  const Address x = args.x.data + static_cast<Address>(b * steps[0] + s * steps[1] + h * steps[2]);
  const Address row = cache_row(args, b, s, h);
  const std::int64_t to_step = args.cache.steps.bytes[4];
  if (steps[3] == bytes_of_real(args.x.dtype) && to_step == bytes_of_real(args.cache.dtype)) {
    float eight[8];
    load_eight(args.x.dtype, x, first, depth, x % 16 == 0, eight);
    store_eight(args.cache.dtype, row, first, depth, row % 16 == 0, eight);
    return;
  }
  for (std::uint32_t d = first; d < first + 8 && d < depth; ++d) {
    store_real(args.cache.dtype, row + static_cast<Address>(d * to_step),
               load_real(args.x.dtype, x + static_cast<Address>(d * steps[3])));
  }
}

TENON_DEVICE void append_plain(const Thread& thread, const CacheArgs& args) {
  if (!is_in_range(args)) return;
  const std::uint32_t parts = append_parts(args);
  for (std::uint32_t i = first_of(thread); i < parts; i += stride_of(thread)) append_part(args, i);
}

/// As it would be in memory.
TENON_DEVICE float rounded_as(DType dtype, float value) {
  if (dtype == DType::f16) return widen_half(narrow_half(value));
  if (dtype == DType::bf16) return widen_bfloat16(narrow_bfloat16(value));
  return value;
}

/// Part `i` of the keys' rope, into their cache.
TENON_DEVICE void rotate_into_cache(const RopeArgs& keys, const CacheArgs& cache, std::uint32_t i) {
  const RopePart at = rope_part(keys, i);
  const Address row = cache_row(cache, at.b, at.s, 0);
  rotate_part(keys, i, [&](const RopePart&, std::uint32_t h, std::uint32_t d, float value) {
    const std::int64_t place = h * cache.cache.steps.bytes[2] + d * cache.cache.steps.bytes[4];
    store_real(cache.cache.dtype, row + static_cast<Address>(place),
               rounded_as(keys.y.dtype, value));
  });
}

/// Rope of queries and keys, and the updates of the caches of these keys and of values.
TENON_DEVICE void rotate_and_append(const Thread& thread, const HeadsArgs& args) {
  const std::uint32_t queries = rope_parts(args.queries), keys = rope_parts(args.keys);
  const std::uint32_t parts = queries + keys + append_parts(args.value_cache);
  for (std::uint32_t i = first_of(thread); i < parts; i += stride_of(thread)) {
    if (i < queries) {
      rotate_into_output(args.queries, i);
    } else if (i < queries + keys) {
      if (is_in_range(args.key_cache)) rotate_into_cache(args.keys, args.key_cache, i - queries);
    } else if (is_in_range(args.value_cache)) {
      append_part(args.value_cache, i - queries - keys);
    }
  }
}

/// A block of 32 elements per thread, with the codes that the CPU gives.
TENON_DEVICE void append_q8_0(const Thread& thread, const CacheArgs& args) {
  if (!is_in_range(args)) return;
  const std::int64_t x_step = args.x.steps.bytes[4];
  for (std::uint32_t i = first_of(thread); i < args.axes.count; i += stride_of(thread)) {
    const Index at = index_of(args.axes, i);
    const Address x = place_of(args.x, at, args.axes.rank);
    float values[32], largest = 0;
    for (int e = 0; e < 32; ++e) {
      values[e] = load_real(args.x.dtype, x + static_cast<Address>(e * x_step));
      const float magnitude = fabsf(values[e]);
      largest = largest > magnitude ? largest : magnitude;
    }
    const float d = largest / 127.0f, inverse = 1.0f / d;
    const float factor = fabsf(inverse) < infinity() ? inverse : 0.0f;
    auto* const block =
        global<quant::BlockQ8_0>(cache_row(args, at.at[0], at.at[1], at.at[2])) + at.at[3];
    block->d = narrow_half(d);
    for (int e = 0; e < 32; ++e) {
      const float code = values[e] * factor;
      block->q[e] = static_cast<std::int8_t>(
          static_cast<std::int32_t>(code + copysignf(0x1.fffffep-2f, code)));
    }
  }
}

}  // namespace tenon::cuda
