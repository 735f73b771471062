#include "used_cache.hpp"

#include <tenon/dtype.hpp>

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::models {
namespace {

constexpr int position_axis = 3;  // of keys and values: [layers, batch, kv_heads, capacity, size]

std::uint64_t bytes_of(std::int64_t elements, DType dtype) {
  return static_cast<std::uint64_t>(elements / block_size(dtype) * block_bytes(dtype));
}

/// The shape without the axis of layers, and with rows of bytes in the place of blocks.
Shape layer_shape(const Shape& shape, std::int64_t positions) {
  std::vector<std::int64_t> dims(shape.dims().begin() + 1, shape.dims().end());
  if (positions >= 0) dims[position_axis - 1] = positions;
  if (!is_block(shape.dtype())) return Shape(std::span<const std::int64_t>(dims), shape.dtype());
  dims.back() = static_cast<std::int64_t>(bytes_of(dims.back(), shape.dtype()));
  return Shape(std::span<const std::int64_t>(dims), u8);
}

/// The number of a stack of keys and values by the path of its array, such as "attention.0.keys"; none of
/// an array of states.
std::optional<std::int64_t> stack_of(std::string_view path) {
  constexpr std::string_view begin = "attention.";
  if (!path.starts_with(begin)) return std::nullopt;
  std::int64_t stack = 0;
  std::from_chars(path.data() + begin.size(), path.data() + path.size(), stack);
  return stack;
}

}  // namespace

std::vector<UsedPart> used_parts(const DecoderConfig& config, const DecoderCache<Buffer>& cache,
                                 std::int64_t positions) {
  std::vector<UsedPart> parts;
  visit_fields(cache, [&](const std::string& path, const Buffer& array) {
    const Shape& shape = array.shape();
    if (path == "shift") return;  // which follows from the images
    const std::optional<std::int64_t> stack = stack_of(path);
    const std::string_view name = std::string_view(path).substr(path.rfind('.') + 1);
    const std::uint64_t layer_bytes =
        static_cast<std::uint64_t>(shape.bytes()) / static_cast<std::uint64_t>(shape[0]);
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      if (!(stack ? config.has_values(layer) : config.keeps_state(layer))) continue;
      const LayerPlace place = config.place(layer);
      if (stack && place.stack != *stack) continue;
      UsedPart part{.name = stack ? fmt::format("layers.{}.attention.{}", layer, name)
                                  : fmt::format("layers.{}.{}", layer, path),
                    .shape = layer_shape(shape, stack ? positions : -1),
                    .array = &array,
                    .offset_bytes =
                        static_cast<std::uint64_t>(stack ? place.keys : place.state) * layer_bytes,
                    .runs = 1,
                    .run_bytes = layer_bytes,
                    .stride_bytes = layer_bytes};
      if (stack) {
        const std::uint64_t row = bytes_of(shape[position_axis + 1], shape.dtype());
        part.runs = static_cast<std::uint64_t>(shape[1] * shape[2]);
        part.run_bytes = static_cast<std::uint64_t>(positions) * row;
        part.stride_bytes = static_cast<std::uint64_t>(shape[position_axis]) * row;
      }
      parts.push_back(std::move(part));
    }
  });
  return parts;
}

void copy_parts(const std::vector<UsedPart>& from, const std::vector<UsedPart>& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const UsedPart& source = from[i];
    const UsedPart& target = to[i];
    if (source.run_bytes == 0) continue;
    source.array->wait();
    for (std::uint64_t run = 0; run < source.runs; ++run) {
      const auto at = [&](const UsedPart& part) {
        return part.array->data() +
               static_cast<std::int64_t>(part.offset_bytes + run * part.stride_bytes);
      };
      target.array->region().copy(at(target), at(source), source.run_bytes);
    }
  }
}

HostBuffer on_host(const UsedPart& part) {
  const Buffer& array = *part.array;
  array.wait();
  const MemPtr begin = array.data();
  if (array.region().is_host()) {
    Strides strides = dense_strides(part.shape);
    if (part.runs > 1) {
      // Heads follow each other at the cache's distance, and there is one sequence.
      strides[1] = static_cast<std::int64_t>(part.stride_bytes);
      strides[0] = strides[1] * part.shape[1];
    }
    return HostBuffer::borrow(begin.cptr() + part.offset_bytes, part.shape, strides);
  }
  HostBuffer copy = HostBuffer::uninitialized(part.shape);
  if (part.run_bytes == 0) return copy;
  for (std::uint64_t run = 0; run < part.runs; ++run) {
    array.chunk().read(copy.view().data + run * part.run_bytes,
                       array.offset_bytes() + part.offset_bytes + run * part.stride_bytes,
                       part.run_bytes);
  }
  return copy;
}

void fill(const UsedPart& part, std::span<const std::byte> bytes) {
  if (part.run_bytes == 0) return;
  for (std::uint64_t run = 0; run < part.runs; ++run) {
    part.array->chunk().write(
        bytes.data() + run * part.run_bytes,
        part.array->offset_bytes() + part.offset_bytes + run * part.stride_bytes, part.run_bytes);
  }
}

}  // namespace tenon::models
