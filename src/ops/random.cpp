#include "array/size_text.hpp"
#include "graph/zeros.hpp"
#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/philox.hpp"
#include "ops/support.hpp"

#include <tenon/ops/arg_reduce.hpp>
#include <tenon/ops/axes.hpp>
#include <tenon/ops/binary.hpp>
#include <tenon/ops/bitwise.hpp>
#include <tenon/ops/broadcast_to.hpp>
#include <tenon/ops/cast.hpp>
#include <tenon/ops/compare.hpp>
#include <tenon/ops/concat.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/gather.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/random.hpp>
#include <tenon/ops/reshape.hpp>
#include <tenon/ops/slice.hpp>
#include <tenon/ops/topk.hpp>
#include <tenon/ops/unary.hpp>
#include <tenon/ops/where.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <string_view>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(random_bits, RandomBits);

Shape RandomBits::infer(std::span<const Shape> in) const {
  if (in.size() < 1 + std::size_t{like_last} || in.size() > 2 + std::size_t{like_last}) {  // C4
    fail(Errc::bad_argument, name,
         fmt::format("{} inputs {} a `like`", in.size(), like_last ? "with" : "without"));
  }
  if (in[0].dtype() != u32 || in[0].rank() != 1 || !sizes_agree(in[0][0], 2)) {  // C1
    fail(Errc::shape_mismatch, name, fmt::format("needs a key u32[2], got {}", to_string(in[0])));
  }
  if (has_first(in.size())) {
    const DType dtype = in[1].dtype();
    if (!is_one_number(in[1]) || (dtype != i32 && dtype != i64 && dtype != u32)) {  // C2
      fail(Errc::shape_mismatch, name,
           fmt::format("needs one number of i32, i64 or u32 to start from, got {}",
                       to_string(in[1])));
    }
  }
  if (like_last) return Shape(in.back().dims(), u32);
  for (const std::int64_t dim : dims) {
    if (dim < 0) {  // C3
      fail(Errc::bad_shape, name,
           fmt::format("sizes {}: they must be known", sizes_text(dims.span())));
    }
  }
  return {dims.span(), u32};
}

void RandomBits::reference(std::span<const HostView> in, const HostView& out) const {
  const auto word = [&](std::int64_t i) {
    return static_cast<std::uint32_t>(load_as_int64(u32, in[0].data + i * in[0].strides[0]));
  };
  const std::uint32_t key0 = word(0), key1 = word(1);
  const auto first =
      has_first(in.size())
          ? static_cast<std::uint64_t>(load_as_int64(in[1].shape.dtype(), in[1].data))
          : std::uint64_t{0};
  std::uint64_t i = 0;
  philox::Block words{};
  for_each_index(out.shape, [&](std::span<const std::int64_t> index) {
    if (i % 4 == 0) {
      words = philox::block(philox::counter(first + i / 4, static_cast<std::uint64_t>(stream)),
                            key0, key1);
    }
    store_int64(u32, out.at(index), words[i % 4]);
    ++i;
  });
}

namespace {

constexpr std::int64_t fold_stream = 1, split_stream = 2;

/// The sizes of what is made: known ones, or those of a value.
struct Sizes {
  std::vector<std::int64_t> dims;
  Tensor like;

  explicit Sizes(std::span<const std::int64_t> known) : dims(known.begin(), known.end()) {}
  /// Those of x.
  Sizes(const Tensor& x, const std::source_location& where) {
    const Shape& shape = x.shape(where);
    if (shape.is_static()) {
      dims.assign(shape.dims().begin(), shape.dims().end());
    } else {
      like = x.with_tags({});
    }
  }
  /// Those of a shape, whose symbols are of the graph that the key is in. Errc::bad_argument.
  Sizes(std::string_view op, const Tensor& key, const Shape& shape,
        const std::source_location& where) {
    if (shape.is_static()) {
      dims.assign(shape.dims().begin(), shape.dims().end());
      return;
    }
    like = detail::of_sizes(key, shape, where);
    if (like.is_empty()) {
      fail_at(where, Errc::bad_argument, op,
              fmt::format("needs known sizes, or those of inputs, got {}", to_string(shape)));
    }
  }

  bool are_known() const noexcept { return like.is_empty(); }

  /// The same with an axis of this size before axis `at`.
  Sizes with_axis(std::size_t at, std::int64_t size, const std::source_location& where) const {
    Sizes more = *this;
    if (are_known()) {
      more.dims.insert(more.dims.begin() + static_cast<std::ptrdiff_t>(at), size);
      return more;
    }
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(like.rank()) + 1, -1);
    sizes[at] = size;
    more.like = broadcast_to(unsqueeze(like, static_cast<std::int64_t>(at), {}, where),
                             std::span<const std::int64_t>(sizes), where);
    return more;
  }
};

Tensor bits_of(const Tensor& key, const Sizes& sizes, const std::source_location& where) {
  if (sizes.are_known()) return record(RandomBits{.dims = IntList(sizes.dims)}, {key}, where);
  return record(RandomBits{.like_last = true}, {key, sizes.like}, where);
}

Tensor shifted(const Tensor& bits, int count, DType dtype, const std::source_location& where) {
  return cast(shift_right(bits, scalar_like(bits, count, where), where), dtype, where);
}

/// Half of an axis of 2 in front.
Tensor part(const Tensor& x, std::int64_t i, const std::source_location& where) {
  return squeeze(slice(x, 0, i, i + 1, 1, where), 0, where);
}

/// Uniform in [0, 1).
Tensor fractions(const Tensor& key, const Sizes& sizes, DType dtype,
                 const std::source_location& where) {
  if (dtype == f64) {
    const Tensor bits = bits_of(key, sizes.with_axis(0, 2, where), where);
    const Tensor high = shifted(part(bits, 0, where), 5, f64, where);
    const Tensor low = shifted(part(bits, 1, where), 6, f64, where);
    return mul(add(mul(high, scalar_like(high, 0x1p26, where), where), low, where),
               scalar_like(high, 0x1p-53, where), where);
  }
  const int digits = dtype == f16 ? 11 : dtype == bf16 ? 8 : 24;
  const Tensor whole = shifted(bits_of(key, sizes, where), 32 - digits, dtype, where);
  return mul(whole, scalar_like(whole, std::ldexp(1.0, -digits), where), where);
}

void require_random_floating(std::string_view op, const Shape& shape,
                             const std::source_location& where) {
  if (!is_floating(shape.dtype())) {
    fail_at(where, Errc::bad_argument, op,
            fmt::format("makes floating numbers, not {}", to_string(shape)));
  }
}

Tensor under_tags(const Tensor& x, const Shape& shape, std::string_view op,
                  const std::source_location& where) {
  std::vector<Axis> axes;
  for (int i = 0; i < shape.rank(); ++i) axes.push_back(shape.axis_at(i));
  return tagged(x, axes, op, where);
}

/// low + x (high - low).
Tensor scaled_to(const Tensor& x, double offset, double factor, const std::source_location& where) {
  Tensor y = x;
  if (factor != 1) y = mul(y, scalar_like(y, factor, where), where);
  if (offset != 0) y = add(y, scalar_like(y, offset, where), where);
  return y;
}

Tensor gumbel_of(const Tensor& key, const Sizes& sizes, DType dtype,
                 const std::source_location& where) {
  const DType computed = dtype == f64 ? f64 : f32;
  Tensor u;
  if (computed == f64) {
    u = fractions(key, sizes, f64, where);
    u = add(u, scalar_like(u, 0x1p-54, where), where);
  } else {  // 23 bits and a half, exact in f32, so that neither 0 nor 1 occurs
    u = shifted(bits_of(key, sizes, where), 9, f32, where);
    u = mul(add(u, scalar_like(u, 0.5, where), where), scalar_like(u, 0x1p-23, where), where);
  }
  const Tensor y = neg(log(neg(log(u, where), where), where), where);
  return dtype == computed ? y : cast(y, dtype, where);
}

}  // namespace

Tensor random_bits(const Tensor& key, std::span<const std::int64_t> dims,
                   const std::source_location& where) {
  return bits_of(key, Sizes(dims), where);
}

Tensor random_key(std::uint64_t seed, const std::source_location& where) {
  const auto word = [&](std::uint64_t value) {
    return full(static_cast<double>(value & 0xFFFFFFFFu), Shape({1}, u32), where);
  };
  const Tensor words[] = {word(seed), word(seed >> 32)};
  return concat(words, 0, where);
}

Tensor fold_in(const Tensor& key, const Tensor& number, const std::source_location& where) {
  return record(RandomBits{.dims = {2}, .stream = fold_stream}, {key, number}, where);
}

Tensor fold_in(const Tensor& key, std::int64_t number, const std::source_location& where) {
  const Iota start{.size = 1, .start = number, .dtype = i64};  // `full` is exact to 2^53 only
  return fold_in(key, record_beside(key, op_def<Iota>(), &start, where), where);
}

std::vector<Tensor> split_key(const Tensor& key, std::int64_t count,
                              const std::source_location& where) {
  constexpr std::int64_t most = 1 << 20;
  if (count < 0 || count > most) {
    fail_at(where, Errc::bad_argument, "split_key",
            fmt::format("cannot make {} keys: 0 to {}", count, most));
  }
  const Tensor words =
      record(RandomBits{.dims = {2 * count}, .stream = split_stream}, {key}, where);
  std::vector<Tensor> keys;
  for (std::int64_t i = 0; i < count; ++i) {
    keys.push_back(slice(words, 0, 2 * i, 2 * i + 2, 1, where));
  }
  return keys;
}

Tensor random_uniform(const Tensor& key, const Shape& shape, double low, double high,
                      const std::source_location& where) {
  require_random_floating("random_uniform", shape, where);
  const Sizes sizes("random_uniform", key, shape, where);
  const Tensor u = fractions(key, sizes, shape.dtype(), where);
  return under_tags(scaled_to(u, low, high - low, where), shape, "random_uniform", where);
}

Tensor random_normal(const Tensor& key, const Shape& shape, double mean, double deviation,
                     const std::source_location& where) {
  require_random_floating("random_normal", shape, where);
  const Sizes sizes("random_normal", key, shape, where);
  const DType computed = shape.dtype() == f64 ? f64 : f32;
  // Each pair of uniform numbers gives two: one half is the radius times the cosine, one the sine.
  const bool is_known = sizes.are_known();
  const std::int64_t count = is_known ? shape.elements() : 0, known_half[] = {(count + 1) / 2};
  const Tensor row = is_known ? Tensor() : flatten(sizes.like, 0, -1, where);
  const Sizes half =
      is_known ? Sizes(known_half) : Sizes(slice(row, 0, 0, to_end, 2, where), where);
  const Tensor u = fractions(key, half.with_axis(0, 2, where), computed, where);
  const Tensor first = part(u, 0, where), second = part(u, 1, where);
  // 1 - u is exact and never 0.
  const Tensor logarithm = log(sub(scalar_like(u, 1, where), first, where), where);
  const Tensor radius = sqrt(mul(logarithm, scalar_like(u, -2, where), where), where);
  const Tensor angle = mul(second, scalar_like(u, 2 * std::numbers::pi, where), where);
  const Tensor halves[] = {mul(radius, cos(angle, where), where),
                           mul(radius, sin(angle, where), where)};
  Tensor y = concat(halves, 0, where);
  if (!is_known) {
    y = reshape_like(gather(y, iota(row, 0, i64, 0, 1, where), 0, where), sizes.like, where);
  } else {
    if (2 * known_half[0] != count) y = slice(y, 0, 0, count, 1, where);
    y = reshape(y, shape.dims(), where);
  }
  y = scaled_to(y, mean, deviation, where);
  if (computed != shape.dtype()) y = cast(y, shape.dtype(), where);
  return under_tags(y, shape, "random_normal", where);
}

Tensor random_exponential(const Tensor& key, const Shape& shape, double rate,
                          const std::source_location& where) {
  require_random_floating("random_exponential", shape, where);
  const Sizes sizes("random_exponential", key, shape, where);
  const DType computed = shape.dtype() == f64 ? f64 : f32;
  const Tensor u = fractions(key, sizes, computed, where);
  Tensor y = mul(log(sub(scalar_like(u, 1, where), u, where), where),
                 scalar_like(u, -1 / rate, where), where);
  if (computed != shape.dtype()) y = cast(y, shape.dtype(), where);
  return under_tags(y, shape, "random_exponential", where);
}

Tensor random_gumbel(const Tensor& key, const Shape& shape, const std::source_location& where) {
  require_random_floating("random_gumbel", shape, where);
  const Sizes sizes("random_gumbel", key, shape, where);
  return under_tags(gumbel_of(key, sizes, shape.dtype(), where), shape, "random_gumbel", where);
}

Tensor random_integers(const Tensor& key, const Shape& shape, std::int64_t low, std::int64_t high,
                       const std::source_location& where) {
  const Sizes sizes("random_integers", key, shape, where);
  std::int64_t range = 0;
  const bool overflows = __builtin_sub_overflow(high, low, &range);
  if (overflows || range < 1 || range > (std::int64_t{1} << 31) || !is_integer(shape.dtype())) {
    fail_at(where, Errc::bad_argument, "random_integers",
            fmt::format("makes integers of a range of 1 to 2^31, not {} in [{}, {})",
                        to_string(shape), low, high));
  }
  const Tensor wide = cast(bits_of(key, sizes, where), i64, where);
  const auto number = [&](std::int64_t value) {
    const Iota one{.size = 1, .start = value, .dtype = i64};
    return squeeze(record_beside(key, op_def<Iota>(), &one, where), 0, where);
  };
  Tensor y = shift_right(mul(wide, number(range), where), number(32), where);
  y = add(y, number(low), where);
  if (shape.dtype() != i64) y = cast(y, shape.dtype(), where);
  return under_tags(y, shape, "random_integers", where);
}

Tensor random_bernoulli(const Tensor& key, const Shape& shape, double p,
                        const std::source_location& where) {
  const Sizes sizes("random_bernoulli", key, shape, where);
  const Tensor u = fractions(key, sizes, f32, where);
  return under_tags(lt(u, scalar_like(u, p, where), where), shape, "random_bernoulli", where);
}

Tensor random_bernoulli(const Tensor& key, const Shape& shape, const Tensor& p,
                        const std::source_location& where) {
  const Sizes sizes("random_bernoulli", key, shape, where);
  const Tensor u = fractions(key, sizes, f32, where);
  return under_tags(lt(u, p, where), shape, "random_bernoulli", where);
}

Tensor random_categorical(const Tensor& key, const Tensor& logits, const AxisRef& axis,
                          const std::source_location& where) {
  const Shape& shape = logits.shape(where);
  require_random_floating("random_categorical", shape, where);
  const int at = axis_of(logits, axis, "random_categorical", where);
  const Tensor noise = gumbel_of(key, Sizes(logits, where), shape.dtype(), where);
  return argmax(add(logits, noise, where), at, false, i32, where);
}

Tensor random_multinomial(const Tensor& key, const Tensor& weights, std::int64_t samples,
                          bool replacement, const std::source_location& where) {
  const Shape& shape = weights.shape(where);
  require_random_floating("random_multinomial", shape, where);
  const int last = axis_of(weights, -1, "random_multinomial", where);
  if (samples < 0 || (!replacement && (!is_static(shape[last]) || samples > shape[last]))) {
    fail_at(where, Errc::bad_argument, "random_multinomial",
            fmt::format("cannot take {} samples of {}", samples, to_string(shape)));
  }
  const Tensor logits = log(weights, where);
  if (!replacement) {
    const Tensor noise = gumbel_of(key, Sizes(weights, where), shape.dtype(), where);
    return topk(add(logits, noise, where), samples, last, where).indices;
  }
  const Sizes sizes =
      Sizes(weights, where).with_axis(static_cast<std::size_t>(last), samples, where);
  const Tensor noise = gumbel_of(key, sizes, shape.dtype(), where);
  return argmax(add(unsqueeze(logits, last, {}, where), noise, where), -1, false, i32, where);
}

Tensor random_permutation(const Tensor& key, std::int64_t size, const std::source_location& where) {
  const std::int64_t dims[] = {size};
  return topk(bits_of(key, Sizes(dims), where), size, 0, where).indices;
}

Tensor dropout(const Tensor& key, const Tensor& x, double rate, const std::source_location& where) {
  if (!(rate >= 0 && rate < 1)) {
    fail_at(where, Errc::bad_argument, "dropout", fmt::format("rate {} is not in [0, 1)", rate));
  }
  if (rate == 0) return x;
  const Tensor u = fractions(key, Sizes(x, where), f32, where);
  const Tensor dropped = lt(u, scalar_like(u, rate, where), where);
  return tenon::where(dropped, scalar_like(x, 0, where),
                      mul(x, scalar_like(x, 1 / (1 - rate), where), where), where);
}

}  // namespace tenon
