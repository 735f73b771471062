#include "base/immortal.hpp"

#include <tenon/error.hpp>
#include <tenon/kernel.hpp>
#include <tenon/nn/objects.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace tenon::nn {
namespace {

constexpr std::string_view magic = "TKVCACH1";

std::int64_t layer_of(const HostView& operand) { return load_as_int64(i64, operand.data); }

bool is_index(const Shape& shape) { return shape.rank() == 0 && shape.dtype() == i64; }

void check_cache(std::string_view op, const Shape& cache, const Shape& layer) {
  if (cache.dtype() != object_type<GrowingCache>()) {
    fail(Errc::bad_type, op, fmt::format("{} is no KvCache", to_string(cache)));
  }
  if (!is_index(layer)) {
    fail(Errc::shape_mismatch, op, fmt::format("layer is {}, not i64[]", to_string(layer)));
  }
}

bool may_equal(std::int64_t a, std::int64_t b) { return a == b || !is_static(a) || !is_static(b); }

/// Numbers of a saved cache, each in bounds.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::int64_t number() {
    std::int64_t value = 0;
    take(&value, sizeof value);
    if (value < 0) corrupt();
    return value;
  }
  std::vector<float> floats(std::int64_t count) {
    if (std::cmp_greater(count, rest_.size() / sizeof(float))) corrupt();
    std::vector<float> values(static_cast<std::size_t>(count));
    take(values.data(), values.size() * sizeof(float));
    return values;
  }
  std::size_t left() const noexcept { return rest_.size(); }
  [[noreturn]] static void corrupt() {
    throw Error(Errc::corrupt, "KvCache", "its bytes are not those of a saved cache");
  }

 private:
  void take(void* to, std::size_t size) {
    if (size > rest_.size()) corrupt();
    if (size > 0) std::memcpy(to, rest_.data(), size);
    rest_.remove_prefix(size);
  }
  std::string_view rest_;
};

}  // namespace

GrowingCache::GrowingCache(std::int64_t layers) {
  if (layers < 0) throw Error(Errc::bad_argument, "KvCache", fmt::format("{} layers", layers));
  layers_.resize(static_cast<std::size_t>(layers));
}

const GrowingCache::Layer& GrowingCache::at(std::int64_t layer) const {
  if (layer < 0 || layer >= layers()) {
    throw Error(Errc::out_of_range, "KvCache",
                fmt::format("layer {} outside [0, {})", layer, layers()));
  }
  return layers_[static_cast<std::size_t>(layer)];
}

void GrowingCache::append(std::int64_t number, const HostView& keys, const HostView& values) {
  static_cast<void>(at(number));
  Layer& layer = layers_[static_cast<std::size_t>(number)];
  const Shape& k = keys.shape;
  const std::int64_t batch = k[0], steps = k[1], heads = k[2], key_size = k[3];
  const std::int64_t value_size = values.shape[3];
  if (layer.keys.empty()) {
    layer.batch = batch;
    layer.heads = heads;
    layer.key_size = key_size;
    layer.value_size = value_size;
    layer.keys.resize(static_cast<std::size_t>(batch * heads));
    layer.values.resize(static_cast<std::size_t>(batch * heads));
  }
  if (layer.batch != batch || layer.heads != heads || layer.key_size != key_size ||
      layer.value_size != value_size) {
    throw Error(Errc::shape_mismatch, "KvCache",
                fmt::format("layer {} has {} rows, {} heads of {} and {} numbers; appended are {} "
                            "and {}",
                            number, layer.batch, layer.heads, layer.key_size, layer.value_size,
                            to_string(k), to_string(values.shape)));
  }
  // Room first, so that a failing allocation leaves the layer as it was.
  const auto rows = static_cast<std::size_t>(layer.length + steps);
  const auto make_room = [&](std::vector<float>& kept, std::int64_t size) {
    const std::size_t needed = rows * static_cast<std::size_t>(size);
    if (needed > kept.capacity()) kept.reserve(std::max(needed, 2 * kept.capacity()));
  };
  for (auto& kept : layer.keys) make_room(kept, key_size);
  for (auto& kept : layer.values) make_room(kept, value_size);
  const auto add = [&](const HostView& from, std::vector<std::vector<float>>& to) {
    for_each_index(from.shape.without_tags().without_axis(3), [&](std::span<const std::int64_t> i) {
      std::vector<float>& kept = to[static_cast<std::size_t>(i[0] * heads + i[2])];
      const std::byte* element = from.at(std::array<std::int64_t, 4>{i[0], i[1], i[2], 0});
      for (std::int64_t d = 0; d < from.shape[3]; ++d, element += from.strides[3]) {
        kept.push_back(static_cast<float>(load_as_double(from.shape.dtype(), element)));
      }
    });
  };
  if (key_size > 0) add(keys, layer.keys);
  if (value_size > 0) add(values, layer.values);
  layer.length += steps;
}

void GrowingCache::attend(std::int64_t number, const HostView& queries, float scale,
                          const HostView& output, std::int64_t begin, std::int64_t end) const {
  const Layer& layer = at(number);
  const Shape& q = queries.shape;
  const std::int64_t steps = q[1], heads = q[2], size = layer.key_size, out = layer.value_size;
  const bool fits = q[0] == layer.batch && q[3] == size && output.shape[3] == out &&
                    layer.heads > 0 && heads % layer.heads == 0 && steps <= layer.length;
  if (!fits) {
    if (q.elements() == 0 && output.shape.elements() == 0) return;
    throw Error(
        Errc::shape_mismatch, "KvCache",
        fmt::format("queries {} for layer {} with {} rows, {} heads of {} and {} numbers, "
                    "{} positions",
                    to_string(q), number, layer.batch, layer.heads, size, out, layer.length));
  }
  std::vector<float> query(static_cast<std::size_t>(size)), sum(static_cast<std::size_t>(out));
  for (std::int64_t pair = begin; pair < end; ++pair) {
    const std::int64_t row = pair / heads, head = pair % heads;
    const auto group = static_cast<std::size_t>(row * layer.heads + head / (heads / layer.heads));
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::byte* element = queries.at(std::array<std::int64_t, 4>{row, step, head, 0});
      for (float& number_of_query : query) {
        std::memcpy(&number_of_query, element, sizeof(float));
        number_of_query *= scale;
        element += queries.strides[3];
      }
      float highest = -std::numeric_limits<float>::infinity(), total = 0;
      std::ranges::fill(sum, 0.0f);
      const float* key = layer.keys[group].data();
      const float* value = layer.values[group].data();
      const std::int64_t seen = layer.length - steps + step + 1;
      for (std::int64_t t = 0; t < seen; ++t, key += size, value += out) {
        float score = 0;
        for (std::int64_t d = 0; d < size; ++d)
          score += query[static_cast<std::size_t>(d)] * key[d];
        if (score > highest) {
          const float shrink = std::exp(highest - score);
          total *= shrink;
          for (float& part : sum) part *= shrink;
          highest = score;
        }
        const float weight = std::exp(score - highest);
        total += weight;
        for (std::int64_t d = 0; d < out; ++d)
          sum[static_cast<std::size_t>(d)] += weight * value[d];
      }
      float* const result = output.as<float>() + ((row * steps + step) * heads + head) * out;
      for (std::int64_t d = 0; d < out; ++d) result[d] = sum[static_cast<std::size_t>(d)] / total;
    }
  }
}

std::string GrowingCache::save() const {
  std::string bytes(magic);
  const auto add = [&](const void* from, std::size_t size) {
    bytes.append(static_cast<const char*>(from), size);
  };
  const auto number = [&](std::int64_t value) { add(&value, sizeof value); };
  number(layers());
  for (const Layer& layer : layers_) {
    for (const std::int64_t value :
         {layer.batch, layer.heads, layer.key_size, layer.value_size, layer.length}) {
      number(value);
    }
    for (const auto* rows : {&layer.keys, &layer.values}) {
      for (const std::vector<float>& kept : *rows) add(kept.data(), kept.size() * sizeof(float));
    }
  }
  return bytes;
}

GrowingCache GrowingCache::load(std::string_view bytes) {
  if (!bytes.starts_with(magic)) Reader::corrupt();
  Reader reader(bytes.substr(magic.size()));
  const std::int64_t count = reader.number();
  constexpr std::size_t layer_bytes = 5 * sizeof(std::int64_t);
  if (std::cmp_greater(count, reader.left() / layer_bytes)) Reader::corrupt();
  GrowingCache cache(count);
  auto pairs_left =
      static_cast<std::int64_t>(bytes.size());  // of all layers, in proportion to the file
  for (Layer& layer : cache.layers_) {
    for (std::int64_t* value :
         {&layer.batch, &layer.heads, &layer.key_size, &layer.value_size, &layer.length}) {
      *value = reader.number();
    }
    std::int64_t pairs = 0, keys = 0, values = 0;
    if (__builtin_mul_overflow(layer.batch, layer.heads, &pairs) ||
        __builtin_mul_overflow(layer.length, layer.key_size, &keys) ||
        __builtin_mul_overflow(layer.length, layer.value_size, &values)) {
      Reader::corrupt();
    }
    if (layer.length == 0) continue;  // append() makes the pairs
    if (pairs > pairs_left) Reader::corrupt();
    pairs_left -= pairs;
    for (std::int64_t i = 0; i < pairs; ++i) layer.keys.push_back(reader.floats(keys));
    for (std::int64_t i = 0; i < pairs; ++i) layer.values.push_back(reader.floats(values));
  }
  if (reader.left() > 0) Reader::corrupt();
  return cache;
}

Shape KvAppend::infer(std::span<const Shape> in) const {
  check_cache(name, in[0], in[1]);
  const Shape &keys = in[2], &values = in[3];
  const bool fits = keys.rank() == 4 && values.rank() == 4 && is_floating(keys.dtype()) &&
                    is_floating(values.dtype()) && may_equal(keys[0], values[0]) &&
                    may_equal(keys[1], values[1]) && may_equal(keys[2], values[2]);
  if (!fits) {
    fail(Errc::shape_mismatch, name,
         fmt::format("keys {} and values {}: [B, S, H, D] and [B, S, H, Dv] of floating types",
                     to_string(keys), to_string(values)));
  }
  return in[0];
}

void KvAppend::reference(std::span<const HostView> in, const HostView& out) const {
  update_object<GrowingCache>(in[0], out).append(layer_of(in[1]), in[2], in[3]);
}

Shape KvAttention::infer(std::span<const Shape> in) const {
  check_cache(name, in[0], in[1]);
  const Shape& q = in[2];
  if (q.rank() != 4 || q.dtype() != f32) {
    fail(Errc::shape_mismatch, name,
         fmt::format("queries are f32[B, S, H, D], not {}", to_string(q)));
  }
  if (value_size < 0 || !std::isfinite(scale)) {
    fail(Errc::bad_attribute, name, fmt::format("value_size {}, scale {}", value_size, scale));
  }
  const Shape result = q.without_tags();
  return value_size == 0 ? result : result.with_dim(3, value_size);
}

void KvAttention::attend(std::span<const HostView> in, const HostView& out, std::int64_t begin,
                         std::int64_t end) const {
  const double size = static_cast<double>(std::max<std::int64_t>(in[2].shape[3], 1));
  const auto factor = static_cast<float>(scale == 0 ? 1 / std::sqrt(size) : scale);
  object_at<GrowingCache>(in[0]).attend(layer_of(in[1]), in[2], factor, out, begin, end);
}

void KvAttention::reference(std::span<const HostView> in, const HostView& out) const {
  attend(in, out, 0, in[2].shape[0] * in[2].shape[2]);
}

Shape KvLength::infer(std::span<const Shape> in) const {
  check_cache(name, in[0], in[1]);
  return Shape(std::span<const Axis>(), i64);
}

void KvLength::reference(std::span<const HostView> in, const HostView& out) const {
  *out.as<std::int64_t>() = object_at<GrowingCache>(in[0]).length(layer_of(in[1]));
}

Tensor kv_append(const Tensor& cache, const Tensor& layer, const Tensor& keys, const Tensor& values,
                 const std::source_location& where) {
  return record(KvAppend{}, {cache, layer, keys, values}, where);
}

Tensor kv_attention(const Tensor& cache, const Tensor& layer, const Tensor& queries,
                    const KvAttention& attributes, const std::source_location& where) {
  return record(attributes, {cache, layer, queries}, where);
}

Tensor kv_length(const Tensor& cache, const Tensor& layer, const std::source_location& where) {
  return record(KvLength{}, {cache, layer}, where);
}

void register_objects() {
  register_object<Generator>(
      "Generator", {.is_linear = true, .save = &Generator::save, .load = &Generator::load});
  register_object<GrowingCache>(
      "KvCache", {.is_linear = true, .save = &GrowingCache::save, .load = &GrowingCache::load});
  register_op<GeneratorUniform>();
  register_op<GeneratorSkip>();
  register_op<KvAppend>();
  register_op<KvAttention>();
  register_op<KvLength>();
  process_wide([] {
    register_kernel<KvAttention>("cpu", {.run = [](const KvAttention& op, const KernelCall& call) {
                                   const Shape& q = call.inputs[2].shape;
                                   const auto [begin, end] = call.share(q[0] * q[2]);
                                   op.attend(call.inputs, call.output, begin, end);
                                 }});
    return true;
  });
}

}  // namespace tenon::nn
