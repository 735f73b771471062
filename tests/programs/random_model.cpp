#include "random_model.hpp"

#include <tenon/control.hpp>
#include <tenon/error.hpp>
#include <tenon/grad.hpp>
#include <tenon/graph.hpp>
#include <tenon/ops.hpp>
#include <tenon/repeat.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

using Dims = std::vector<std::int64_t>;

constexpr std::int64_t max_elements = 1 << 15;

std::int64_t product(const Dims& dims) {
  std::int64_t result = 1;
  for (const std::int64_t dim : dims) result *= dim;
  return result;
}

Dims dims_of(const Tensor& tensor) {
  const auto dims = tensor.shape().dims();
  return {dims.begin(), dims.end()};
}

Shape shape_of(const Dims& dims, DType dtype) {
  return Shape(std::span<const std::int64_t>(dims), dtype);
}

/// What both makers draw with.
HostBuffer uniform(std::mt19937_64& engine, const Shape& shape, double scale) {
  const auto of_numbers = [&](const auto& numbers) {
    const HostBuffer values = HostBuffer::zeros(shape);
    std::ranges::copy(std::as_bytes(std::span(numbers)), values.view().data);
    return values;
  };
  const auto elements = static_cast<std::size_t>(shape.elements());
  if (shape.dtype() == u64) {  // of every length
    std::vector<std::uint64_t> numbers(elements);
    for (std::uint64_t& number : numbers) number = engine() >> (engine() % 64);
    return of_numbers(numbers);
  }
  std::vector<float> numbers(elements * (is_complex(shape.dtype()) ? 2 : 1));
  std::uniform_real_distribution<float> distribution(-1, 1);
  for (float& number : numbers) number = static_cast<float>(scale) * distribution(engine);
  if (is_complex(shape.dtype())) return of_numbers(numbers);
  const auto values = HostBuffer::of<float>(shape.with_dtype(f32), std::span<const float>(numbers));
  return shape.dtype() == f32 ? values : values.to(shape.dtype());
}

struct Layer {
  std::vector<Tensor> weights;
  TENON_FIELDS(weights)
};

struct Block {
  std::vector<Layer> layers;
  TENON_FIELDS(layers)
};

struct Stage {
  std::vector<Block> blocks;
  TENON_FIELDS(blocks)
};

struct Carry {
  std::vector<Tensor> values;
  TENON_FIELDS(values)
};

/// Where a program's inputs and constants come from.
class Leaves {
 public:
  Leaves() = default;
  virtual ~Leaves() = default;
  Leaves(const Leaves&) = delete;
  Leaves& operator=(const Leaves&) = delete;
  virtual Tensor input(const std::string& name, const Shape& shape) = 0;
  virtual Tensor constant(const std::string& name, const Shape& shape) = 0;
};

/// New ones of a graph.
class FreshLeaves : public Leaves {
 public:
  explicit FreshLeaves(Graph& graph) : graph_(graph) {}
  Tensor input(const std::string& name, const Shape& shape) override {
    return graph_.input(name, shape);
  }
  Tensor constant(const std::string& name, const Shape& shape) override {
    return graph_.constant(name, shape);
  }

 private:
  Graph& graph_;
};

/// Those of a model struct and of its forward's arguments.
class GivenLeaves : public Leaves {
 public:
  GivenLeaves(std::span<const Tensor> inputs, const std::map<std::string, Tensor>& constants)
      : inputs_(inputs), constants_(constants) {}
  Tensor input(const std::string&, const Shape&) override { return inputs_[next_++]; }
  Tensor constant(const std::string& name, const Shape&) override { return constants_.at(name); }

 private:
  std::span<const Tensor> inputs_;
  const std::map<std::string, Tensor>& constants_;
  std::size_t next_ = 0;
};

class Maker {
 public:
  Maker(const RandomModelPlan& plan, Leaves& leaves)
      : plan_(plan), engine_(plan.seed), leaves_(leaves) {}

  std::vector<Tensor> record() {
    model_.moves = static_cast<int>(integer(2, 14));
    values_.push_back(plan_.kind == ProgramKind::images ? some_image()
                                                        : input(shape_of(some_dims(), f32)));
    for (int i = 0; i < model_.moves; ++i) {
      if (plan_.dropped.contains(i)) continue;
      engine_.seed(plan_.seed * 1000003 + static_cast<std::uint64_t>(i) + 1);
      move();
    }
    engine_.seed(plan_.seed * 1000003);
    return outputs();
  }

  /// What record() made, with the values of what it reads.
  RandomModel model(Program program) {
    model_.program = std::move(program);
    take_used();
    return std::move(model_);
  }

 private:
  // Numbers.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(engine_); }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[integer(0, std::ssize(list) - 1)];
  }
  std::int64_t some_size() {
    if (chance(0.02)) return 0;
    return one_of<std::int64_t>({1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17});
  }
  /// Of an axis along which sums are made: often whole blocks, odd numbers too.
  std::int64_t some_inputs() {
    if (chance(0.02)) return 0;
    return one_of<std::int64_t>({1, 5, 16, 32, 32, 32, 33, 64, 64, 96, 256});
  }
  std::int64_t some_outputs() {
    if (chance(0.02)) return 0;
    return one_of<std::int64_t>({1, 3, 8, 16, 17, 32, 33, 48, 64});
  }
  Dims some_dims() {
    Dims dims;
    for (std::int64_t rank = integer(0, 3); rank > 0; --rank) dims.push_back(some_size());
    dims.push_back(some_inputs());
    while (product(dims) > max_elements / 4) dims.erase(dims.begin());
    return dims;
  }

  HostBuffer some_values(const Shape& shape, double scale) {
    return uniform(engine_, shape, scale);
  }

  // Leaves.
  Tensor input(const Shape& shape, double scale = 1) { return input_of(some_values(shape, scale)); }
  Tensor input_of(HostBuffer value) {
    const Tensor tensor = leaves_.input(fmt::format("in.{}", inputs_.size()), value.shape());
    inputs_.push_back(std::move(value));
    return tensor;
  }
  Tensor constant_of(const std::string& name, HostBuffer value) {
    const Tensor tensor = leaves_.constant(name, value.shape());
    constants_.push_back(tensor);
    model_.weights.insert_or_assign(name, std::move(value));
    return tensor;
  }
  Tensor constant(const Shape& shape, double scale) {
    return constant_of(fmt::format("c{}", model_.weights.size()), some_values(shape, scale));
  }
  Tensor leaf(const Shape& shape, double scale) {
    return chance(0.7) ? constant(shape, scale) : input(shape, scale);
  }
  /// Whole numbers in [0, limit).
  Tensor indices(const Dims& dims, std::int64_t limit) {
    const auto fill = [&]<class T>(T) {
      std::vector<T> numbers(static_cast<std::size_t>(product(dims)));
      for (T& number : numbers) number = static_cast<T>(integer(0, limit - 1));
      return HostBuffer::of<T>(shape_of(dims, dtype_of<T>()), std::span<const T>(numbers));
    };
    const auto values = [&] { return chance(0.5) ? fill(std::int32_t()) : fill(std::int64_t()); };
    if (limit == 0) return input_of(HostBuffer::zeros(shape_of(dims, i32)));
    return chance(0.5) ? input_of(values())
                       : constant_of(fmt::format("c{}", model_.weights.size()), values());
  }

  // Arrays of wanted sizes, in one disguise or another.

  /// A constant that is large enough to be sliced to these sizes, used before.
  std::optional<Tensor> part_of_known(const Dims& dims, DType dtype) {
    std::vector<Tensor> found;
    for (const Tensor& tensor : constants_) {
      const Dims known = dims_of(tensor);
      if (tensor.dtype() != dtype || known.size() != dims.size() || known.empty()) continue;
      if (known.back() != dims.back()) continue;
      if (std::equal(dims.begin(), dims.end(), known.begin(), std::less_equal<>()))
        found.push_back(tensor);
    }
    if (found.empty()) return std::nullopt;
    Tensor tensor = found[static_cast<std::size_t>(integer(0, std::ssize(found) - 1))];
    for (std::size_t i = 0; i + 1 < dims.size(); ++i) {
      const std::int64_t size = dims_of(tensor)[i];
      if (size == dims[i]) continue;
      const std::int64_t begin = integer(0, size - dims[i]);
      tensor = slice(tensor, static_cast<std::int64_t>(i), begin, begin + dims[i]);
    }
    return tensor;
  }

  Tensor of_shape(const Dims& dims, DType dtype, double scale = 1, int depth = 0) {
    const std::int64_t rank = std::ssize(dims);
    const bool blocks = is_block(dtype);
    // The innermost axis of blocks stays as it is.
    const std::int64_t movable = blocks ? rank - 1 : rank;
    if (depth > 2 || product(dims) > max_elements) return leaf(shape_of(dims, dtype), scale);
    if (dtype == f16 || dtype == bf16) model_.has_halves = true;
    const auto again = [&](const Dims& other) { return of_shape(other, dtype, scale, depth + 1); };
    switch (integer(0, 17)) {
      case 0:
      case 1:
        if (auto known = part_of_known(dims, dtype)) return *known;
        break;
      case 2: {  // a slice of more
        if (movable == 0) break;
        const std::int64_t axis = integer(0, movable - 1),
                           step = one_of<std::int64_t>({1, 1, 2, 3});
        const std::int64_t before = integer(0, 3), size = dims[static_cast<std::size_t>(axis)];
        const std::int64_t end = before + (size == 0 ? 0 : (size - 1) * step + 1);
        Dims larger = dims;
        larger[static_cast<std::size_t>(axis)] = end + integer(0, 2);
        return slice(again(larger), axis, before, end, step);
      }
      case 3: {  // turned
        if (movable < 2) break;
        std::vector<int> order(static_cast<std::size_t>(rank));
        for (int i = 0; i < rank; ++i) order[static_cast<std::size_t>(i)] = i;
        std::shuffle(order.begin(), order.begin() + movable, engine_);
        Dims turned(dims.size());
        std::vector<AxisRef> axes;
        for (int i = 0; i < rank; ++i) {
          turned[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] =
              dims[static_cast<std::size_t>(i)];
          axes.emplace_back(order[static_cast<std::size_t>(i)]);
        }
        return permute(again(turned), std::span<const AxisRef>(axes));
      }
      case 4: {  // one of several
        if (rank == max_rank || (blocks && rank == 0)) break;
        Dims several = dims;
        const std::int64_t count = integer(1, 3);
        several.insert(several.begin(), count);
        if (chance(0.5)) return select(again(several), indices({}, count));
        return squeeze(slice(again(several), 0, count - 1, count), 0);
      }
      case 5: {  // broadcast
        if (movable == 0 || blocks) break;
        Dims narrow = dims;
        for (std::int64_t i = 0; i < movable; ++i) {
          if (chance(0.4)) narrow[static_cast<std::size_t>(i)] = 1;
        }
        return broadcast_to(again(narrow), std::span<const std::int64_t>(dims));
      }
      case 6: {  // axes merged
        if (movable == 0 || rank == max_rank) break;
        const std::int64_t axis = integer(0, movable - 1);
        const auto at = static_cast<std::size_t>(axis);
        const std::int64_t outer = dims[at] % 2 == 0 && dims[at] > 0 ? 2 : 1;
        Dims apart = dims;
        apart[at] /= outer;
        apart.insert(apart.begin() + axis, outer);
        return merge_axes(again(apart), axis, axis + 1);
      }
      case 7: {  // an axis split
        if (movable < 2) break;
        const std::int64_t axis = integer(0, movable - 2);
        const auto at = static_cast<std::size_t>(axis);
        Dims together = dims;
        together[at] *= together[at + 1];
        together.erase(together.begin() + axis + 1);
        return split_axis(again(together), axis, {dims[at], dims[at + 1]});
      }
      case 8: {  // flat before
        if (blocks || product(dims) == 0) break;
        return reshape(again({product(dims)}), std::span<const std::int64_t>(dims));
      }
      case 9: {  // one part of a chunked axis
        if (movable == 0) break;
        const auto at = static_cast<std::size_t>(integer(0, movable - 1));
        const std::int64_t parts = integer(2, 3);
        if (dims[at] == 0) break;
        Dims all = dims;
        all[at] *= parts;
        const auto chunks = chunk(again(all), parts, static_cast<std::int64_t>(at));
        return chunks[static_cast<std::size_t>(integer(0, std::ssize(chunks) - 1))];
      }
      case 10:  // an axis of one element more or less
        if (rank == max_rank || (blocks && rank == 0)) break;
        if (rank > 1 && dims[0] == 1 && chance(0.5)) {
          return unsqueeze(again(Dims(dims.begin() + 1, dims.end())), 0);
        } else {
          Dims more = dims;
          more.insert(more.begin(), 1);
          return squeeze(again(more), 0);
        }
      case 11:  // computed
        if (blocks)
          return dtype == DType::q8_0 ? quantize(again_in(dims, f32, scale, depth), dtype)
                                      : leaf(shape_of(dims, dtype), scale);
        if (!is_floating(dtype)) break;
        return smooth(again(dims));
      case 12: {  // joined
        if (blocks || rank == 0) break;
        const auto at = static_cast<std::size_t>(integer(0, rank - 1));
        Dims first = dims, second = dims;
        first[at] = integer(0, dims[at]);
        second[at] -= first[at];
        return concat({again(first), again(second)}, static_cast<std::int64_t>(at));
      }
      case 13: {  // a value of the program
        std::vector<Tensor> same;
        for (const Tensor& value : values_) {
          if (value.dtype() == dtype && dims_of(value) == dims) same.push_back(value);
        }
        if (same.empty()) break;
        return same[static_cast<std::size_t>(integer(0, std::ssize(same) - 1))];
      }
      default:
        break;
    }
    return leaf(shape_of(dims, dtype), scale);
  }
  Tensor again_in(const Dims& dims, DType dtype, double scale, int depth) {
    return of_shape(dims, dtype, scale, depth + 1);
  }

  /// A function whose result moves little when its argument does.
  Tensor smooth(const Tensor& x) {
    switch (integer(0, 22)) {
      case 0:
        return tanh(x);
      case 1:
        return sigmoid(x);
      case 2:
        return silu(x);
      case 3:
        return gelu(x);
      case 4:
        return gelu_tanh(x);
      case 5:
        return relu(x);
      case 6:
        return softplus(x);
      case 7:
        return mish(x);
      case 8:
        return hardswish(x);
      case 9:
        return hardsigmoid(x);
      case 10:
        return leaky_relu(x, 0.3);
      case 11:
        return elu(x, 0.7);
      case 12:
        return clamp(x, -0.8, 0.9);
      case 13:
        return -x;
      case 14:
        return abs(x);
      case 15:
        return x * 0.5;
      case 16:
        return x + 0.25;
      case 17:
        return sin(x);
      case 18:
        return cos(x);
      case 19:
        return erf(x);
      case 20:
        return relu6(x);
      case 21:
        return sqrt(abs(x) + 0.1);
      default:
        return 1.0 - x;
    }
  }

  // Moves: each adds values.
  Tensor pick() {
    const std::int64_t last = std::ssize(values_) - 1;
    const std::int64_t back =
        chance(0.6) ? integer(0, std::min<std::int64_t>(2, last)) : integer(0, last);
    return values_[static_cast<std::size_t>(last - back)];
  }
  /// One with elements along its last axis, in f32 or another floating type.
  Tensor pick_rows() {
    for (int attempt = 0; attempt < 5; ++attempt) {
      const Tensor x = pick();
      if (x.rank() > 0) return x;
    }
    return of_shape(some_dims(), f32);
  }
  DType weight_type(std::int64_t inputs) {
    if (inputs % 256 == 0 && inputs > 0 && chance(0.5)) {
      return one_of<DType>({DType::q4_k, DType::q6_k, DType::q2_k, DType::q3_k, DType::q5_k,
                            DType::iq4_xs, DType::iq2_s, DType::iq3_s, DType::tq2_0});
    }
    if (inputs % 32 == 0 && inputs > 0 && chance(0.5)) {
      return one_of<DType>({DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                            DType::iq4_nl, DType::mxfp4});
    }
    if (inputs % 128 == 0 && inputs > 0 && chance(0.2)) return DType::q1_0;
    if (inputs % 64 == 0 && inputs > 0 && chance(0.2))
      return one_of<DType>({DType::nvfp4, DType::q2_0});
    return one_of<DType>({f32, f32, f32, f16, bf16});
  }
  void add(const Tensor& value) { values_.push_back(value); }

  void move() {
    if (plan_.kind == ProgramKind::images && chance(0.85)) return add(some_layer(pick()));
    const auto add_one = [&](const Tensor& value) { add(value); };
    switch (integer(0, 39)) {
      case 38:
        return add_one(some_indexed_constant(pick()));
      case 39:
        return add_one(some_stages(pick()));
      case 32:
        return some_nest(pick());
      case 33:
        return some_complex();
      case 34:
        return some_unsigned();
      case 35:
        if (chance(0.4)) return some_slices_beside(pick_rows());
        return some_update(pick_rows());
      case 36:
        return add_one(some_gradient_of_loop(pick_rows()));
      case 0:
      case 1:
      case 2:
      case 3:
        return add_one(some_linear(pick_rows()));
      case 4:
        return add_one(chance(0.5) ? some_linear(pick_rows()) : some_grouped_linear(pick_rows()));
      case 5:
        return add_one(smooth(pick()));
      case 6:
        return add_one(some_binary(pick()));
      case 7:
        return add_one(some_norm(pick_rows()));
      case 8:
        return add_one(some_matmul());
      case 9:
        return add_one(some_embedding());
      case 10:
      case 11:
        return add_one(some_attention());
      case 12:
        return add_one(some_rope());
      case 13:
        return add_one(some_glu());
      case 14:
        return add_one(some_reduction(pick()));
      case 15:
        return add_one(some_convolution());
      case 16:
        return add_one(some_pool());
      case 17:
        return add_one(some_view(pick()));
      case 18:
        return add_one(some_pick(pick_rows()));
      case 19:
      case 20:
        return some_loop();
      case 21:
        return some_state();
      case 22:
        return add_one(some_cast(pick()));
      case 23:
        return add_one(some_softmax(pick_rows()));
      case 24:
        return add_one(some_arrangement(pick()));
      case 25:
      case 26:
        return add_one(some_quantised());
      case 27:
        return some_scan(pick_rows());
      case 28:
        return add_one(some_gradient(pick_rows()));
      case 29:
        return some_branch(pick());
      case 30:
        return some_while(pick_rows());
      case 31:
        return add_one(some_recurrence());
      default:
        return add_one(of_shape(some_dims(), f32));
    }
  }

  Tensor some_linear(const Tensor& x) {
    const std::int64_t k = x.dim(-1), n = some_outputs();
    const double scale = 1.5 / std::sqrt(static_cast<double>(std::max<std::int64_t>(k, 1)));
    const Tensor w = of_shape({n, k}, weight_type(k), scale);
    Dims result = dims_of(x);
    result.back() = n;
    if (product(result) > max_elements) return smooth(x);
    Tensor bias, residual;
    if (chance(0.4)) bias = of_shape({n}, chance(0.9) ? f32 : f16);
    if (chance(0.3)) residual = of_shape(result, x.dtype());
    const Tensor y = linear(x, w, bias, residual);
    if (chance(0.3)) return smooth(y);
    if (residual.is_empty() && chance(0.3)) return y + of_shape(result, x.dtype());
    return y;
  }

  /// Rows of x, or each several times, by weights that are chosen from.
  Tensor some_grouped_linear(Tensor x) {
    const std::int64_t k = x.dim(-1), n = some_outputs(), groups = integer(1, 6);
    Dims leading = dims_of(x);
    leading.pop_back();
    if (leading.empty() || chance(0.5)) {
      x = unsqueeze(x, -2);
      leading.push_back(integer(1, 4));
    }
    Dims result = leading;
    result.push_back(n);
    if (product(result) > max_elements || product({groups, n, k}) > max_elements) return smooth(x);
    const double scale = 1.5 / std::sqrt(static_cast<double>(std::max<std::int64_t>(k, 1)));
    const Tensor w = of_shape({groups, n, k}, weight_type(k), scale);
    const Tensor group = indices(leading, groups);
    const Tensor y =
        grouped_linear(x, w, group, chance(0.3) ? of_shape({groups, n}, f32) : Tensor());
    // Another layer of the same rows, as a gate has it.
    return chance(0.3) ? y * grouped_linear(x, w, group) : y;
  }

  // Codes of 8 bits. They come from leaves: rounding a computed value would make steps of small
  // differences.
  static constexpr double some_codes = 120;

  DType code_type() { return chance(0.5) ? i8 : u8; }
  Tensor number(double low, double high, DType dtype) {
    const double value = low + (high - low) * static_cast<double>(integer(0, 1000)) / 1000;
    const auto array = HostBuffer::of<float>(Shape({}, f32), {static_cast<float>(value)});
    return constant_of(fmt::format("c{}", model_.weights.size()),
                       dtype == f32 ? array : array.to(dtype));
  }
  Tensor zero_point(DType dtype) {
    if (chance(0.3)) return {};
    return dtype == i8 ? number(-20, 20, i8) : number(20, 140, u8);
  }
  /// One scale, or one for each output, for sums of `products`.
  Tensor some_scale(std::int64_t outputs, std::int64_t products) {
    const double most = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(products, 1)));
    if (chance(0.5)) return number(0.5 * most, most, f32);
    return leaf(Shape({outputs}, f32), most);
  }

  /// Rows or images of codes times weights of codes, in any of the ways to write it; f32.
  Tensor some_quantised() {
    const DType type = code_type();
    Dims dims = some_dims();
    if (chance(0.5)) dims = {integer(1, 2), integer(1, 9), integer(1, 9), integer(1, 9)};
    const Tensor x = of_shape(dims, type, some_codes);
    const Tensor x_zero = zero_point(type);
    const bool is_image = dims.size() == 4 && std::min(dims[2], dims[3]) > 0;
    if (!is_image || chance(0.2)) return some_quantised_rows(x, x_zero);
    const std::int64_t channels = dims[1], outputs = std::max<std::int64_t>(some_outputs(), 1);
    const bool is_depthwise = channels > 1 && chance(0.3);
    const std::int64_t taps = std::min(dims[2], dims[3]) > 1 && chance(0.6) ? 3 : 1;
    Conv2dInteger options{.stride = {integer(1, 2), integer(1, 2)}};
    if (taps == 3) options.padding = {1, 1, 1, integer(0, 2)};
    if (is_depthwise) options.groups = channels;
    const Dims filter{is_depthwise ? channels : outputs, is_depthwise ? 1 : channels, taps, taps};
    const Tensor w = of_shape(filter, i8, some_codes);
    const Tensor scale = some_scale(filter[0], filter[1] * taps * taps * 10000);
    if (chance(0.3)) {
      const Tensor unit = number(1, 1, f32);
      return conv2d(dequantize_linear(x, unit, x_zero), dequantize_linear(w, scale, {}, 0), {},
                    {.stride = options.stride,
                     .padding = options.padding,
                     .dilation = {},
                     .groups = options.groups});
    }
    return finished(conv2d_integer(x, w, x_zero, zero_point(i8), options), scale, 1);
  }

  Tensor some_quantised_rows(const Tensor& x, const Tensor& x_zero) {
    const std::int64_t k = x.dim(-1), outputs = some_outputs();
    const DType type = code_type();
    const Tensor w = of_shape({outputs, k}, type, some_codes), w_zero = zero_point(type);
    const Tensor scale = some_scale(outputs, k * 10000);
    if (chance(0.3)) {
      const Tensor unit = number(1, 1, f32);
      const Tensor bias = chance(0.5) ? of_shape({outputs}, f32) : Tensor();
      return linear(dequantize_linear(x, unit, x_zero), dequantize_linear(w, scale, w_zero, 0),
                    bias);
    }
    return finished(linear_integer(x, w, x_zero, w_zero), scale, -1);
  }

  /// Sums as values: with a bias of one kind or another, and sometimes by way of codes again.
  Tensor finished(Tensor sums, const Tensor& scale, std::int64_t axis) {
    Dims plane{sums.dim(axis)};
    if (axis == 1) plane.insert(plane.end(), {1, 1});
    if (chance(0.3)) sums = sums + of_shape(plane, i32, 5000);
    if (chance(0.4)) {
      const DType type = code_type();
      const Tensor zero = type == i8 ? number(-20, 20, i8) : number(100, 140, u8);
      const Tensor codes = requantize(sums, scale * number(30, 60, f32), zero, axis);
      return dequantize_linear(codes, number(0.01, 0.02, f32), zero);
    }
    Tensor y = dequantize_linear(sums, scale, {}, axis);
    if (chance(0.5)) y = y + of_shape(plane, f32);
    return chance(0.5) ? relu(y) : y;
  }

  Tensor some_binary(const Tensor& x) {
    Dims other = dims_of(x);
    for (std::int64_t& dim : other) {
      if (chance(0.2)) dim = 1;
    }
    if (!other.empty() && chance(0.3)) other.erase(other.begin());
    const Tensor y = of_shape(other, x.dtype());
    switch (integer(0, 6)) {
      case 0:
        return x + y;
      case 1:
        return y - x;
      case 2:
        return x * y;
      case 3:
        return minimum(x, y);
      case 4:
        return maximum(y, x);
      case 5:
        return x / (abs(y) + 0.5);
      default:
        return where(x, y);
    }
  }
  Tensor where(const Tensor& x, const Tensor& y) {
    std::vector<char> flags(static_cast<std::size_t>(x.shape().elements()));
    for (char& flag : flags) flag = chance(0.5) ? 1 : 0;
    HostBuffer condition = HostBuffer::zeros(x.shape().with_dtype(boolean).without_tags());
    std::copy(flags.begin(), flags.end(), reinterpret_cast<char*>(condition.view().data));
    return tenon::where(input_of(condition), x, y);
  }

  Tensor some_norm(const Tensor& x) {
    const Dims size{x.dim(-1)};
    const double eps = 1e-2;
    switch (integer(0, 4)) {
      case 0:
        return rms_norm(x, eps);
      case 1:
        return rms_norm(x, of_shape(size, x.dtype()), eps);
      case 2:
        return layer_norm(x, eps);
      case 3:
        return layer_norm(x, of_shape(size, x.dtype()), eps);
      default:
        return layer_norm(x, of_shape(size, x.dtype()), of_shape(size, x.dtype()), eps);
    }
  }

  Tensor some_softmax(const Tensor& x) {
    const std::int64_t axis = chance(0.7) ? -1 : integer(0, x.rank() - 1);
    return chance(0.7) ? softmax(x, axis) : log_softmax(x, axis);
  }

  Tensor some_matmul() {
    const std::int64_t m = some_size(), k = some_inputs(), n = some_size();
    Dims a{m, k}, b{k, n};
    if (chance(0.15)) a = {k};
    if (chance(0.15)) b = {k};
    for (std::int64_t leading = integer(0, 2); leading > 0; --leading) {
      const std::int64_t size = integer(1, 3);
      if (a.size() > 1) a.insert(a.begin(), chance(0.8) ? size : 1);
      if (b.size() > 1 && chance(0.8)) b.insert(b.begin(), size);
    }
    // Leading axes are counted from the end: make them agree.
    for (std::size_t i = 3; i <= std::min(a.size(), b.size()); ++i) {
      auto &x = a[a.size() - i], &y = b[b.size() - i];
      if (x != y && x != 1 && y != 1) y = x;
    }
    const DType dtype = chance(0.9) ? f32 : f16;
    const double scale = 1.5 / std::sqrt(static_cast<double>(std::max<std::int64_t>(k, 1)));
    return matmul(of_shape(a, dtype), of_shape(b, dtype, scale));
  }

  Tensor some_embedding() {
    const std::int64_t rows = std::max<std::int64_t>(1, some_outputs()), size = some_inputs();
    Dims ids;
    for (std::int64_t rank = integer(0, 2); rank > 0; --rank) ids.push_back(some_size());
    Tensor which = indices(ids, rows);
    if (ids.size() == 2 && chance(0.3)) {
      which = transpose(indices({ids[1], ids[0]}, rows));
    }
    const Tensor table = of_shape({rows, size}, weight_type(size));
    const DType dtype = chance(0.9) ? f32 : f16;
    if (dtype == f16) model_.has_halves = true;
    const Tensor y = embedding(which, table, dtype);
    // The same table again, as an output layer has it.
    if (dtype == f32 && chance(0.4)) return linear(y, table);
    return y;
  }

  Tensor some_attention() {
    const std::int64_t b = integer(1, 2), s = one_of<std::int64_t>({1, 1, 2, 5, 8, 17, 33}),
                       groups = integer(1, 3), kv_heads = integer(1, 2),
                       t = s + one_of<std::int64_t>({0, 0, 1, 3, 40});
    const std::int64_t d = chance(0.03) ? 0 : one_of<std::int64_t>({1, 7, 16, 32, 64});
    const std::int64_t dv = chance(0.8) ? d : one_of<std::int64_t>({0, 1, 8, 32});
    DType kv = one_of<DType>({f32, f32, f32, f16, bf16, DType::q8_0});
    if (kv == DType::q8_0 && (d % 32 != 0 || dv % 32 != 0 || d * dv == 0)) kv = f32;
    const Tensor q = of_shape({b, s, groups * kv_heads, d}, f32);
    // In pages: as many of one key, or of some, as make t keys.
    Tensor table;
    Dims rows{b, t};
    if (chance(0.3)) {
      rows[1] = t % 3 == 0 ? 3 : t % 2 == 0 ? t / 2 : 1;
      rows[0] = integer(1, 5);
      std::vector<std::int32_t> pages;
      for (std::int64_t i = 0; i < b * (t / rows[1]); ++i) {
        pages.push_back(static_cast<std::int32_t>(integer(0, rows[0] - 1)));
      }
      table = input_of(HostBuffer::of<std::int32_t>(shape_of({b, t / rows[1]}, i32), pages));
    }
    const Tensor k = of_shape({rows[0], rows[1], kv_heads, d}, kv);
    const Tensor v = of_shape({rows[0], rows[1], kv_heads, dv}, kv);
    Attention options;
    options.causal = chance(0.5);
    if (chance(0.3)) options.window = integer(1, 20);
    if (chance(0.2)) options.softcap = 5;
    if (chance(0.2)) options.scale = 0.3;
    Tensor position, mask, sinks;
    if (chance(0.2)) {
      std::vector<std::int32_t> positions;
      for (std::int64_t row = 0; row < b; ++row) {
        positions.push_back(static_cast<std::int32_t>(integer(0, t - s)));
      }
      position = input_of(HostBuffer::of<std::int32_t>(shape_of({b}, i32), positions));
    } else if (chance(0.3)) {
      position = input_of(HostBuffer::of<std::int32_t>(
          shape_of({}, i32), {static_cast<std::int32_t>(integer(0, t - s))}));
    }
    if (chance(0.4)) {
      Dims dims{b, groups * kv_heads, s, t};
      for (std::int64_t& dim : dims) {
        if (chance(0.4)) dim = 1;
      }
      dims.erase(dims.begin(), dims.begin() + integer(0, 4));
      mask = of_shape(dims, f32);
    }
    if (chance(0.3)) sinks = of_shape({groups * kv_heads}, f32);
    return attention(q, k, v, options, position, mask, sinks, table);
  }

  /// Of Mamba or RWKV-7: what the steps give, or their states.
  Tensor some_recurrence() {
    const std::int64_t b = integer(1, 2), s = one_of<std::int64_t>({0, 1, 2, 5, 9}),
                       j = integer(1, 4), n = one_of<std::int64_t>({1, 3, 16}),
                       p = one_of<std::int64_t>({1, 5, 16, 17});
    const Dims keys{b, s, j, n}, values{b, s, j, p};
    const Tensor state = of_shape({b, n, j, p}, f32);
    Tensor lengths;
    if (chance(0.4)) {
      std::vector<std::int32_t> rows;
      for (std::int64_t row = 0; row < b; ++row) {
        rows.push_back(static_cast<std::int32_t>(integer(0, s)));
      }
      lengths = input_of(HostBuffer::of<std::int32_t>(shape_of({b}, i32), rows));
    }
    if (chance(0.5)) {
      const std::int64_t groups = j % 2 == 0 && chance(0.5) ? 2 : 1;
      const Tensor dt = sigmoid(of_shape({b, s, j}, f32));
      const Tensor a = -softplus(of_shape({j, chance(0.5) ? n : 1}, f32));
      const auto [y, last] =
          selective_scan(of_shape(values, f32), dt, a, of_shape({b, s, groups, n}, f32, 0.5),
                         of_shape({b, s, groups, n}, f32, 0.5), state, lengths);
      return chance(0.7) ? y : last;
    }
    const Wkv7Inputs in{.r = of_shape(keys, f32, 0.5),
                        .w = sigmoid(of_shape(keys, f32)),
                        .k = of_shape(keys, f32, 0.5),
                        .v = of_shape(values, f32),
                        .a = of_shape(keys, f32, 0.2),
                        .b = of_shape(keys, f32, 0.2)};
    if (chance(0.3)) return wkv7_states(in, state, lengths);
    const auto [y, last] = wkv7(in, state, lengths);
    return chance(0.7) ? y : last;
  }

  Tensor some_rope() {
    const std::int64_t b = integer(1, 2), s = some_size(), h = integer(1, 3),
                       d = one_of<std::int64_t>({2, 6, 16, 32});
    const DType dtype = chance(0.9) ? f32 : f16;
    const Tensor x = of_shape({b, s, h, d}, dtype);
    Rope options;
    options.interleaved = chance(0.5);
    if (d > 2 && chance(0.3)) options.dims = d - 2;
    const std::int64_t pairs = (options.dims != 0 ? options.dims : d) / 2;
    Dims positions{s};
    if (pairs > 2 && chance(0.3)) {
      options.sections = {pairs - 2, 1, 1};
      options.sections_interleaved = chance(0.5);
      positions.insert(positions.begin(), 3);
    }
    if (chance(0.5)) positions.insert(positions.begin(), b);
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(product(positions)));
    for (auto& number : numbers) number = static_cast<std::int32_t>(integer(0, 50));
    const Tensor where = input_of(HostBuffer::of<std::int32_t>(
        shape_of(positions, i32), std::span<const std::int32_t>(numbers)));
    return rope(x, where, options);
  }

  Tensor some_glu() {
    const Name activation(one_of<const char*>({"silu", "gelu", "gelu_tanh", "relu", "sigmoid"}));
    const Tensor x = pick_rows();
    if (x.dim(-1) % 2 == 0 && x.dim(-1) > 0 && chance(0.5)) {
      const auto halves = chunk(x, 2, -1);
      return glu(halves[0], halves[1], activation);
    }
    return glu(x, of_shape(dims_of(x), x.dtype()), activation);
  }

  Tensor some_reduction(const Tensor& x) {
    if (x.rank() == 0) return smooth(x);
    AxisList axes;
    const std::int64_t axis = integer(0, x.rank() - 1);
    const bool keep = chance(0.5);
    if (x.dim(axis) == 0) return sum(x, axis, keep);
    switch (integer(0, 4)) {
      case 0:
        return mean(x, axis, keep);
      case 1:
        return max(x, axis, keep);
      case 2:
        return min(x, axis, keep);
      case 3:
        return cumsum(x * 0.2, axis);
      default:
        return sum(x * 0.2, axis, keep);
    }
  }

  Tensor some_convolution() {
    const std::int64_t n = integer(0, 8) == 0 ? 0 : integer(1, 3),
                       groups = one_of<std::int64_t>({1, 1, 1, 2, 4}),
                       cg = one_of<std::int64_t>({1, 3, 4, 16}),
                       og = one_of<std::int64_t>({1, 2, 5, 16}), height = integer(3, 12),
                       width = integer(3, 12), kernel = one_of<std::int64_t>({1, 3, 3, 2});
    const DType dtype = chance(0.92) ? f32 : f16;
    const Tensor x = of_shape({n, groups * cg, height, width}, dtype);
    const double scale = 1.5 / std::sqrt(static_cast<double>(cg * kernel * kernel));
    const Tensor w = of_shape({groups * og, cg, kernel, kernel}, dtype, scale);
    Tensor bias;
    if (chance(0.5)) bias = of_shape({groups * og}, dtype);
    Conv2d options;
    options.groups = groups;
    if (chance(0.3)) options.stride = {2, integer(1, 2)};
    if (kernel > 1 && chance(0.5)) options.padding = {1, 1};
    if (kernel == 2 && chance(0.3)) options.dilation = {2, 1};
    const Tensor y = conv2d(x, w, bias, options);
    if (chance(0.3)) return smooth(y);
    if (chance(0.3)) return relu(y + of_shape(dims_of(y), dtype));
    return y;
  }

  Tensor some_pool() {
    const Tensor x = of_shape({integer(1, 2), integer(1, 5), integer(3, 9), integer(3, 9)},
                              chance(0.9) ? f32 : f16);
    if (chance(0.5)) {
      MaxPool2d options;
      options.kernel = {integer(1, 3), integer(1, 3)};
      if (chance(0.5)) options.stride = {2, 2};
      return max_pool2d(x, options);
    }
    AvgPool2d options;
    options.kernel = {integer(1, 3), integer(1, 3)};
    if (chance(0.5)) options.stride = {1, 2};
    return avg_pool2d(x, options);
  }

  // Images: [N, C, H, W] of f32.
  std::int64_t some_channels() { return one_of<std::int64_t>({1, 3, 8, 20, 31, 32, 33, 64, 64}); }
  static bool is_image(const Tensor& x) {
    return x.rank() == 4 && x.dtype() == f32 && x.shape().elements() > 0;
  }
  Tensor some_image() {
    return of_shape({integer(1, 2), some_channels(), integer(1, 12), integer(1, 12)}, f32);
  }
  bool fits(const Dims& dims) { return product(dims) <= max_elements; }

  Tensor some_layer(const Tensor& given) {
    const Tensor x = is_image(given) ? given : some_image();
    const std::int64_t n = x.dim(0), c = x.dim(1), h = x.dim(2), w = x.dim(3);
    switch (integer(0, 15)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return image_convolution(x);
      case 4:
        return image_pool(x);
      case 5:
      case 6:
        return smooth(x);
      case 7:  // a value for each element, channel or image
        return some_binary_of(
            x, of_shape(one_of<Dims>({{n, c, h, w}, {1, c, 1, 1}, {n, c, 1, 1}}), f32));
      case 8:
        return joined(x);
      case 9: {
        const std::int64_t blocks = (c - 1) / 32,
                           begin = chance(0.7) ? 32 * integer(0, blocks) : c / 3;
        return slice(x, 1, begin, chance(0.5) ? c : std::min(c, begin + 32));
      }
      case 10: {
        const std::int64_t axis = integer(2, 3);
        return slice(x, axis, x.dim(axis) / 4, x.dim(axis), integer(1, 2));
      }
      case 11: {
        const Tensor y = pad(pad(x, 2, integer(0, 2), integer(0, 2)), 3, integer(0, 3), 0,
                             chance(0.9) ? 0 : 0.5);
        return fits(dims_of(y)) ? y : smooth(x);
      }
      case 12:
        return chance(0.5) ? x * mean(x, {2, 3}, true) : x - mean(x, {2, 3}, true);
      case 13:
        return some_linear(chance(0.7) ? flatten(x, 1, 3) : permute(x, {0, 2, 3, 1}));
      case 14: {
        if (c % 2 != 0) return relu(x);
        const auto halves = chunk(x, 2, 1);
        return glu(halves[0], halves[1], Name("sigmoid"));
      }
      default: {
        const Tensor rows = reshape(x, {n * c, h * w});
        return matmul(rows,
                      chance(0.5) ? transpose(rows) : of_shape({h * w, integer(1, 40)}, f32)) *
               (1.0 / static_cast<double>(h * w));
      }
    }
  }

  Tensor some_binary_of(const Tensor& x, const Tensor& y) {
    switch (integer(0, 3)) {
      case 0:
        return x + y;
      case 1:
        return x - y;
      case 2:
        return x * y;
      default:
        return maximum(x, y);
    }
  }

  Tensor image_convolution(const Tensor& x) {
    const std::int64_t c = x.dim(1), h = x.dim(2), w = x.dim(3);
    const std::int64_t kh = std::min(h, one_of<std::int64_t>({1, 3, 3, 2, 5})),
                       kw = std::min(w, one_of<std::int64_t>({1, 3, 3, 4}));
    Conv2d options{.stride = {integer(1, 2), integer(1, 2)}};
    if (chance(0.5)) options.padding = {kh / 2, (kh - 1) / 2, kw / 2, kw / 2};
    if (2 * kh - 1 <= h && 2 * kw - 1 <= w && chance(0.2)) options.dilation = {2, 2};
    std::int64_t o = some_channels();
    if (chance(0.3)) options.groups = o = c;
    if (c % 2 == 0 && chance(0.1)) {
      options.groups = 2;
      o = 2 * c;
    }
    const std::int64_t inner = c / options.groups;
    if (x.dim(0) * o * (h + 4) * (w + 4) > max_elements) return relu(x);
    const double scale = 1.7 / std::sqrt(static_cast<double>(inner * kh * kw));
    Tensor bias;
    if (chance(0.6)) bias = of_shape({o}, f32, 0.3);
    const Tensor y = conv2d(x, of_shape({o, inner, kh, kw}, f32, scale), bias, options);
    if (chance(0.3)) return relu(y);
    if (chance(0.2)) return smooth(y);
    if (chance(0.3)) return relu6(y + of_shape(dims_of(y), f32));
    return y;
  }

  Tensor image_pool(const Tensor& x) {
    const std::int64_t kh = std::min(x.dim(2), integer(1, 4)),
                       kw = std::min(x.dim(3), integer(1, 3));
    const std::array<std::int64_t, 2> stride{integer(1, 2), integer(1, 3)};
    const bool padded = kh > 1 && kw > 1 && chance(0.5);
    if (chance(0.5)) {
      MaxPool2d options{.kernel = {kh, kw}, .stride = {stride[0], stride[1]}};
      if (padded) options.padding = {1, 0, 0, 1};
      return max_pool2d(x, options);
    }
    AvgPool2d options{.kernel = {kh, kw}, .stride = {stride[0], stride[1]}};
    if (padded) options.padding = {0, 1, 1, 0};
    options.count_include_pad = chance(0.8);
    return avg_pool2d(x, options);
  }

  /// Images of one size next to each other; most have whole blocks of channels.
  Tensor joined(const Tensor& x) {
    std::vector<Tensor> parts;
    for (const Tensor& other : values_) {
      if (!is_image(other) || other.dim(0) != x.dim(0) || parts.size() == 2) continue;
      if (other.dim(2) != x.dim(2) || other.dim(3) != x.dim(3)) continue;
      if (other.dim(1) % 32 == 0 || chance(0.2)) parts.push_back(other);
    }
    if (parts.empty()) parts.push_back(of_shape({x.dim(0), 32, x.dim(2), x.dim(3)}, f32));
    parts.push_back(x);
    const Tensor y = concat(parts, 1);
    return fits(dims_of(y)) ? y : smooth(x);
  }

  Tensor some_view(const Tensor& x) {
    const std::int64_t rank = x.rank();
    if (rank == 0) return unsqueeze(x, 0);
    const std::int64_t axis = integer(0, rank - 1), size = x.dim(axis);
    switch (integer(0, 6)) {
      case 0:
        return slice(x, axis, size / 3, size - size / 4, integer(1, 2));
      case 1: {
        if (rank < 2) return slice(x, 0, size / 2);
        return transpose(x, axis, integer(0, rank - 1));
      }
      case 2:
        return rank < 6 ? unsqueeze(x, integer(0, rank)) : x;
      case 3:
        return flatten(x);
      case 4: {
        if (x.shape().elements() > max_elements / 4 || rank > 5) return x;
        Dims more = dims_of(x);
        more.insert(more.begin(), integer(1, 3));
        return broadcast_to(x, std::span<const std::int64_t>(more));
      }
      case 5:
        return size > 0 ? chunk(x, 2, axis).back() : x;
      default:
        return x.dim(0) > 0 ? select(x, indices({}, x.dim(0))) : smooth(x);
    }
  }

  Tensor unmoved(const Tensor& x) { return is_floating(x.dtype()) ? smooth(x) : x; }
  Tensor some_pick(const Tensor& x) {
    const std::int64_t axis = integer(0, x.rank() - 1), size = x.dim(axis);
    if (size == 0) return unmoved(x);
    if (chance(0.5)) {
      const Dims which = chance(0.7) ? Dims{integer(0, 5)} : Dims{2, 2};
      if (x.shape().elements() / size * product(which) > max_elements || x.rank() > 6)
        return unmoved(x);
      const Tensor picked = gather(x, indices(which, size), axis);
      if (which.size() < 2 || !is_floating(x.dtype()) || chance(0.3)) return picked;
      // Bags of slices, whose sums the CPU computes without the slices.
      return chance(0.5) ? sum(picked, {axis + 1}) : mean(picked, {axis + 1}, chance(0.5));
    }
    Dims which = dims_of(x);
    which[static_cast<std::size_t>(axis)] = integer(0, 3);
    return take_along(x, indices(which, size), axis);
  }

  Tensor some_cast(const Tensor& x) {
    model_.has_halves = true;
    if (chance(0.1)) {
      model_.has_rare_types = true;
      return cast(x, f64);
    }
    return cast(x, x.dtype() == f32 ? one_of<DType>({f16, bf16}) : f32);
  }

  Tensor some_arrangement(const Tensor& x) {
    const std::int64_t rank = x.rank();
    if (rank == 0 || x.shape().elements() > max_elements / 4) return smooth(x);
    const std::int64_t axis = integer(0, rank - 1);
    switch (integer(0, 10)) {
      case 5:
        return flip(x, axis);
      case 6:
        return roll(x, integer(-3, 3), axis);
      case 7:
        return slice(flip(x, axis), axis, 0, to_end, 2);
      case 8:
        return sort(x, axis);
      case 9:
        return cummax(x, axis);
      case 10: {
        if (x.dim(axis) < 2) return flip(x, axis);
        const Name mode = one_of<Name>({"edge", "circular", "reflect"});
        return pad(x, axis, integer(0, 1), integer(0, 1), mode);
      }
      case 0:
        return pad(x, axis, integer(0, 2), integer(0, 2), 0.5);
      case 1:
        return concat({x, of_shape(dims_of(x), x.dtype())}, axis);
      case 2:
        return tile(x, 2, axis);
      case 3:
        return repeat_interleave(x, 2, axis);
      default:
        return stack({x, x * 0.5}, 0);
    }
  }

  // Complex numbers and numbers of 64 bits without a sign, which are recorded as ops of other types.
  // They stay among themselves: what comes of them is a result, or floats for other moves.

  void some_complex() {
    Dims dims = some_dims();
    Tensor z = chance(0.5) ? of_shape(dims, c64) : complex_parts(dims);
    for (std::int64_t i = integer(1, 4); i > 0; --i) z = complex_step(z);
    if (chance(0.5)) kept_.push_back(z);
    add(chance(0.5) ? real(z) : chance(0.5) ? imag(z) : abs(z));
  }
  Tensor complex_parts(const Dims& dims) {
    if (chance(0.5)) return make_complex(of_shape(dims, f32), of_shape(dims, f32));
    Dims pairs = dims;
    pairs.push_back(2);
    return view_as_complex(of_shape(pairs, f32));
  }

  /// A function of z whose values stay of the order of z's.
  Tensor complex_step(const Tensor& z) {
    const Dims dims = dims_of(z);
    const auto other = [&] { return of_shape(dims, c64); };
    const std::int64_t axis = z.rank() == 0 ? 0 : integer(0, z.rank() - 1);
    const std::int64_t size = z.rank() == 0 ? 0 : z.dim(axis);
    if (size == 0) return z * other();
    switch (integer(0, 17)) {
      case 0:
        return chance(0.5) ? z + other() : other() - z;
      case 1:
        return z * other();
      case 2:
        return z / (other() * 0.5 + 1.5);
      case 3:
        return conj(z);
      case 4:
        return square(z) * 0.2;
      case 5:
        return exp(z * 0.1);
      case 6:
        return chance(0.5) ? sin(z * 0.1) : cos(z * 0.1);
      case 7:
        return -z * of_shape(dims, f32);  // beside real numbers
      case 8:
        return (chance(0.5) ? fft(z, axis) : ifft(z, axis)) * (1 / std::sqrt(double(size)));
      case 9:
        return chance(0.5) ? sum(z, axis, true) * 0.3 : mean(z, axis, chance(0.5));
      case 10:
        return cumsum(z * 0.3, axis);
      case 11: {
        const std::int64_t n = integer(1, 9);
        Dims result = dims;
        result.back() = n;
        if (dims.back() == 0 || product(result) > max_elements) return conj(z);
        return matmul(z, of_shape({dims.back(), n}, c64)) *
               (1 / std::sqrt(static_cast<double>(dims.back())));
      }
      case 12:
        return where(z, other());
      case 13:
        return tenon::where(is_finite(z), z, other());
      case 14:
        return tenon::where(chance(0.5) ? eq(z, other()) : ne(z, other()), z, other());
      case 15:
        return some_arrangement_of(z, axis);
      case 16:
        return some_pick(z);
      default:
        return view_as_complex(view_as_real(z) * 0.7);
    }
  }
  /// Moves elements of any type.
  Tensor some_arrangement_of(const Tensor& x, std::int64_t axis) {
    switch (integer(0, 5)) {
      case 0:
        return flip(x, axis);
      case 1:
        return roll(x, integer(-3, 3), axis);
      case 2:
        return pad(x, axis, integer(0, 2), integer(0, 2));
      case 3:
        return x.shape().elements() > max_elements / 4 ? x : concat({x, x}, axis);
      case 4:
        return transpose(x, axis, 0);
      default:
        return slice(x, axis, x.dim(axis) / 3);
    }
  }

  void some_unsigned() {
    model_.has_rare_types = true;
    Tensor x = of_shape(some_dims(), u64);
    for (std::int64_t i = integer(1, 4); i > 0; --i) x = unsigned_step(x);
    if (chance(0.6)) kept_.push_back(x);
    // The topmost bits as a number in [0, 1).
    add(cast(shift_right(x, scalar_like(x, 44)), f32) * std::ldexp(1.0, -20));
  }

  Tensor unsigned_step(const Tensor& x) {
    const Dims dims = dims_of(x);
    const auto other = [&] { return of_shape(dims, u64); };
    const std::int64_t axis = x.rank() == 0 ? 0 : integer(0, x.rank() - 1);
    if (x.rank() == 0 || x.dim(axis) == 0) return x + other();
    switch (integer(0, 19)) {
      case 0:
        return chance(0.5) ? x + other() : other() - x;
      case 1:
        return x * other();
      case 2:
        return chance(0.5) ? div(x, other()) : div(other(), x);
      case 3:
        return remainder(other(), x);
      case 4:
        return bitwise_xor(x, bitwise_not(other()));
      case 5:
        return chance(0.5) ? bitwise_and(x, other()) : bitwise_or(x, other());
      case 6:
        return chance(0.5) ? shift_left(x, scalar_like(x, 3)) : shift_right(x, scalar_like(x, 5));
      case 7:
        return chance(0.5) ? minimum(x, other()) : maximum(x, other());
      case 8:
        return tenon::where(one_of({lt, le, gt, ge, eq, ne})(x, other(), here()), x, other());
      case 9:
        return chance(0.5) ? max(x, axis, true) : min(x, axis, true);
      case 10:
        return chance(0.5) ? sum(x, axis, true) : prod(x, axis, true);
      case 11:
        return chance(0.5) ? cumsum(x, axis) : cumprod(x, axis);
      case 12:
        return chance(0.5) ? cummax(x, axis) : cummin(x, axis);
      case 13:
        return sort(x, axis, chance(0.5));
      case 14:
        return take_along(x, argsort(x, axis), axis);
      case 15:
        return cast(argmax(x, axis, true), u64) + other();
      case 16:
        return some_arrangement_of(x, axis);
      case 17:
        return some_pick(x);
      case 18:
        return where(x, other());
      default:
        return square(x) - cast(cast(bitwise_and(x, scalar_like(x, 1023)), i32), u64);
    }
  }
  static std::source_location here() { return std::source_location::current(); }

  /// One or the other of two ways to change a value, by an input.
  void some_branch(const Tensor& x) {
    const Tensor number = indices({}, 2);
    const Tensor predicate = eq(number, scalar_like(number, 1));
    const Tensor other = of_shape(dims_of(x), x.dtype());
    if (chance(0.4)) {
      const auto [a, b] = cond(
          predicate, [&] { return std::pair(smooth(x), 0.5 * x); },
          [&] { return std::pair(other, x + other); });
      add(a);
      return add(b);
    }
    const Tensor y = cond(
        predicate, [&] { return tanh(x) + other; },
        [&] {
          if (x.rank() == 0 || chance(0.5)) return 0.25 * x;
          return softmax(x, -1);
        });
    add(chance(0.5) ? y : smooth(y));
  }

  /// A loop that an input ends, or its limit.
  void some_while(const Tensor& x) {
    using Counted = std::pair<Tensor, Tensor>;
    const Tensor end = indices({}, 5);
    const std::int64_t k = x.dim(-1);
    const bool multiplies = k > 0 && k <= 64 && chance(0.5);
    const double scale = 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(k, 1)));
    const Tensor w = multiplies ? of_shape({k, k}, weight_type(k), scale) : Tensor();
    const bool branches = chance(0.3);
    const Counted last = while_loop(
        Counted(scalar_like(end, 0), x), [&](const Counted& now) { return lt(now.first, end); },
        [&](const Counted& now) {
          const Tensor mixed = multiplies ? tanh(linear(now.second, w)) : tanh(now.second);
          Tensor next = 0.5 * (mixed + x);
          if (branches) {
            const Tensor is_first = eq(now.first, scalar_like(now.first, 0));
            next = cond(is_first, [&] { return next; }, [&] { return 0.25 * next; });
          }
          return Counted(now.first + scalar_like(now.first, 1), next);
        },
        integer(0, 6));
    add(last.second);
  }

  /// Loops and branches inside each other, which read slices of one stack by their indices.
  void some_nest(const Tensor& x) {
    if (x.shape().elements() > max_elements / 4 || x.rank() > 7) return add(smooth(x));
    Dims dims = dims_of(x);
    dims.insert(dims.begin(), 3);
    Nest nest{of_shape(dims, x.dtype()), indices({}, 3), {}};
    for (std::int64_t level = integer(2, 4); level > 0; --level)
      nest.kinds.push_back(integer(0, 2));
    add(nested(nest, 0, x));
  }
  /// Loops inside each other; the innermost one reads what an op makes of one element of a constant.
  Tensor some_indexed_constant(const Tensor& x) {
    Dims counts;
    for (std::int64_t level = integer(2, 4); level > 0; --level) counts.push_back(integer(1, 3));
    const auto unread = static_cast<std::size_t>(integer(0, 2 * std::ssize(counts)));
    if (unread < counts.size())
      counts[unread] = 1;  // the same elements in each iteration of this loop
    const Tensor elements =
        constant_of(fmt::format("indexed{}", loops_++), some_values(shape_of(counts, f32), 1));
    return changed_by(elements, unread, x);
  }
  Tensor changed_by(const Tensor& elements, std::size_t unread, const Tensor& x) {
    if (elements.rank() == 0) return 0.5 * x + cast(abs(elements), x.dtype());
    if (unread == 0) {
      return repeat(std::int64_t{2}, x, [&](const Tensor&, const Tensor& now) {
        return changed_by(reshape(elements, dims_after_first(elements)), unread - 1, now);
      });
    }
    return repeat(elements.dim(0), x, [&](const Tensor& index, const Tensor& now) {
      return changed_by(select(elements, index), unread - 1, now);
    });
  }
  static Dims dims_after_first(const Tensor& x) {
    const Dims dims = dims_of(x);
    return Dims(dims.begin() + 1, dims.end());
  }

  /// Stages of blocks of layers, each with a weight of its own.
  Tensor some_stages(const Tensor& x) {
    const int number = loops_++;
    const std::int64_t blocks = integer(1, 3), layers = integer(1, 3);
    std::vector<Stage> stages(static_cast<std::size_t>(integer(1, 3)));
    for (std::size_t i = 0; i < stages.size(); ++i) {
      for (std::int64_t j = 0; j < blocks; ++j) {
        Block& block = stages[i].blocks.emplace_back();
        for (std::int64_t k = 0; k < layers; ++k) {
          const std::string name =
              fmt::format("stages{}.{}.blocks.{}.layers.{}.w", number, i, j, k);
          block.layers.push_back({{constant_of(name, some_values(shape_of({}, f32), 1))}});
        }
      }
    }
    return repeat(stages, x, [&](const Stage& stage, const Tensor&, const Tensor& in_stage) {
      return repeat(stage.blocks, in_stage,
                    [&](const Block& block, const Tensor&, const Tensor& in) {
                      return repeat(block.layers, in,
                                    [&](const Layer& layer, const Tensor&, const Tensor& now) {
                                      return 0.5 * now + cast(layer.weights[0], now.dtype());
                                    });
                    });
    });
  }

  struct Nest {
    Tensor stack, number;  ///< [3, ...] of what is changed, and an integer scalar in [0, 3)
    std::vector<std::int64_t> kinds;
  };
  Tensor nested(const Nest& nest, std::size_t level, const Tensor& x) {
    if (level == nest.kinds.size()) return 0.5 * (tanh(x) + select(nest.stack, nest.number));
    const auto inside = [&](const Tensor& now) { return nested(nest, level + 1, now); };
    switch (nest.kinds[level]) {
      case 0:
        return repeat(std::int64_t{2}, x, [&](const Tensor& index, const Tensor& now) {
          return 0.5 * inside(0.5 * now + select(nest.stack, index)) + 0.25 * now;
        });
      case 1: {
        using Counted = std::pair<Tensor, Tensor>;
        return while_loop(
                   Counted(scalar_like(nest.number, 0), x),
                   [&](const Counted& now) { return le(now.first, nest.number); },
                   [&](const Counted& now) {
                     return Counted(now.first + scalar_like(now.first, 1),
                                    0.5 * inside(now.second) + 0.5 * select(nest.stack, now.first));
                   },
                   2)
            .second;
      }
      default:
        return cond(
            eq(nest.number, scalar_like(nest.number, static_cast<double>(level % 3))),
            [&] { return 0.25 * x + select(nest.stack, nest.number); }, [&] { return inside(x); });
    }
  }

  /// A running mix of the slices along the first axis: the last one, and all of them.
  void some_scan(const Tensor& x) {
    if (x.shape().elements() > max_elements || x.dim(0) > 40) return add(smooth(x));
    const Dims dims = dims_of(x);
    const Tensor start = of_shape(Dims(dims.begin() + 1, dims.end()), x.dtype());
    const bool reads_other = chance(0.5);
    const auto [last, all] = scan(start, x, [&](const Tensor& carry, const Tensor& slice) {
      const Tensor next = 0.5 * carry + tanh(slice);
      return std::pair(next, reads_other ? next - 0.25 * carry : next);
    });
    add(last);
    add(all);
  }

  /// Slices beside a loop's index: a branch leaves out those that are not there.
  void some_slices_beside(const Tensor& x) {
    const std::int64_t rows = x.dim(0);
    if (rows == 0 || rows > 12 || x.shape().elements() > max_elements) return add(smooth(x));
    const Dims dims = dims_of(x);
    const Tensor start = of_shape(Dims(dims.begin() + 1, dims.end()), x.dtype());
    const std::int64_t apart = integer(-2, 2);
    add(repeat(integer(0, rows + 2), start, [&](const Tensor& index, const Tensor& now) {
      const Tensor place = index + scalar_like(index, apart);
      const Tensor is_there =
          logical_and(ge(place, scalar_like(place, 0)), lt(place, scalar_like(place, rows)));
      return 0.5 * now +
             cond(is_there, [&] { return tanh(select(x, place)); }, [&] { return start; });
    }));
  }

  /// The gradient of `loss` by x, or of that gradient's squares.
  Tensor once_or_twice(const Tensor& loss, const Tensor& x) {
    const Tensor once = grad(loss, x);
    return chance(0.3) ? grad(sum(once * once) + sum(x * x), x) : once;
  }

  /// The gradient of a small loss with respect to a value that others use, too.
  Tensor some_gradient(const Tensor& x) {
    const std::int64_t k = x.dim(-1), n = integer(1, 9);
    const double scale = 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(k, 1)));
    const Tensor w = of_shape({n, k}, chance(0.7) ? f32 : weight_type(k), scale);
    Dims result = dims_of(x);
    result.back() = n;
    if (product(result) > max_elements) return smooth(x);
    Tensor y = tanh(linear(x, w, chance(0.5) ? of_shape({n}, f32) : Tensor()));
    if (chance(0.4)) y = softmax(y, -1);
    if (chance(0.4)) y = layer_norm(y, 0.1);
    return once_or_twice(sum(y * y), x);
  }

  /// Slices of a computed value, written in place: once, or in a loop, at its index or at another.
  void some_update(const Tensor& x) {
    const std::int64_t rows = x.dim(0);
    if (rows == 0 || rows > 12 || x.shape().elements() > max_elements) return add(smooth(x));
    const Tensor number = indices({}, rows);
    const bool reads = chance(0.6), changes = chance(0.6), is_own = chance(0.5);
    const auto update = [&](const Tensor& all, const Tensor& index) {
      const Tensor now = changes ? all + x : all * 0.5;  // not the value of anyone else
      Tensor y = tanh(select(x, index));
      if (reads) y = y + 0.5 * select(now, is_own ? index : cast(number, index.dtype()));
      return update_slice(now, index, y);
    };
    if (chance(0.4)) return add(update(smooth(x), number));
    const std::int64_t way = integer(0, 2), count = integer(0, rows);
    add(repeat(count, smooth(x), [&](const Tensor& index, const Tensor& all) {
      if (way == 0) return update(all, index);
      if (way == 1) return update(all, scalar_like(index, rows - 1) - index);
      return update(all, number);
    }));
  }

  /// The gradient of a loss with respect to a value that goes through a loop or is read by it.
  Tensor some_gradient_of_loop(const Tensor& x) {
    const std::int64_t rows = x.dim(0);
    if (rows > 12 || x.shape().elements() > max_elements) return smooth(x);
    const std::int64_t width = x.dim(-1);
    const bool multiplies = width > 0 && width <= 64 && chance(0.5);
    const double scale = 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(width, 1)));
    const Tensor w = multiplies ? of_shape({width, width}, weight_type(width), scale) : Tensor();
    const auto mixed = [&](const Tensor& a) {
      return multiplies && a.rank() > 0 ? tanh(linear(a, w)) : tanh(a);
    };
    Tensor loss;
    switch (integer(0, 3)) {
      case 0: {
        const Tensor y = repeat(integer(0, 4), x, [&](const Tensor& index, const Tensor& now) {
          return mixed(now) + cast(index, x.dtype()) * 0.1 * x;
        });
        loss = sum(y * y);
        break;
      }
      case 1: {
        if (x.rank() < (multiplies ? 2 : 1)) return smooth(x);
        const Dims dims = dims_of(x);
        const Tensor start = of_shape(Dims(dims.begin() + 1, dims.end()), x.dtype());
        const auto [last, all] = scan(start, x, [&](const Tensor& carry, const Tensor& slice) {
          const Tensor next = 0.5 * mixed(carry) + sin(slice);
          return std::pair(next, next * slice);
        });
        loss = sum(last) + sum(all * all);
        break;
      }
      case 2: {
        using Counted = std::pair<Tensor, Tensor>;
        const Tensor end = indices({}, 5);
        const Counted last = while_loop(
            Counted(scalar_like(end, 0), x), [&](const Counted& now) { return lt(now.first, end); },
            [&](const Counted& now) {
              return Counted(now.first + scalar_like(now.first, 1), mixed(now.second) + 0.5 * x);
            },
            integer(0, 6));
        loss = sum(last.second * last.second);
        break;
      }
      default: {
        const Tensor way = indices({}, 2);
        loss = sum(cond(
            eq(way, scalar_like(way, 1)), [&] { return mixed(x) * x; }, [&] { return sin(x); }));
        break;
      }
    }
    return once_or_twice(loss, x);
  }

  /// Layers with weights of their own, shared ones, and ones picked by the layer's number.
  void some_loop() {
    const int number = loops_++;
    const std::int64_t count = integer(0, 3), width = one_of<std::int64_t>({8, 16, 32, 33, 64});
    const std::int64_t rows = std::max<std::int64_t>(1, some_size());
    const DType type = weight_type(width);
    const double scale = 1.0 / std::sqrt(static_cast<double>(width));
    // One layer in some stacks has weights of another type: it becomes a function of its own.
    const bool mixed = chance(0.2);
    std::vector<Layer> layers(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      const DType own = mixed && i == 1 ? f32 : type;
      for (const char* name : {"a", "b"}) {
        layers[static_cast<std::size_t>(i)].weights.push_back(
            constant_of(fmt::format("loop{}.{}.{}", number, i, name),
                        some_values(shape_of({2 * width, width}, own), scale)));
      }
    }
    const Tensor shared = of_shape({width, width}, weight_type(width), scale);
    const Tensor stacked = of_shape({std::max<std::int64_t>(count, 1), width, width}, f32, scale);
    const Tensor outer = of_shape({rows, width}, f32);
    const Tensor chosen = indices({rows, 2}, stacked.dim(0));
    const std::int64_t kind = integer(0, 6);
    const bool two = chance(0.3);
    Carry carry;
    carry.values.push_back(of_shape({rows, width}, f32));
    if (two) carry.values.push_back(of_shape({rows, width}, f32));
    const bool swap = chance(0.5);
    const Carry result =
        repeat(layers, carry, [&](const Layer& layer, const Tensor& index, const Carry& in) {
          const Tensor x = in.values[0];
          Tensor y;
          switch (kind) {
            case 0:
              y = x + linear(rms_norm(x, 1e-2), slice(layer.weights[0], 0, width, 2 * width));
              break;
            case 1: {
              const Tensor h = linear(x, layer.weights[0]);
              const auto halves = chunk(h, 2, -1);
              y = linear(glu(halves[0], halves[1]), shared, {}, x);
              break;
            }
            case 2:
              y = linear(x, select(stacked, index)) + outer;
              break;
            case 3:
              y = tanh(linear(x, slice(layer.weights[1], 0, 0, 2 * width, 2)));
              break;
            case 4:
              y = relu(matmul(x, select(stacked, index)) - linear(x, shared));
              break;
            case 5:
              y = tanh(sum(grouped_linear(unsqueeze(x, 1), stacked, chosen), {1}));
              break;
            default:
              y = silu(linear(x, chunk(layer.weights[1], 2, 0)[1])) + x * 0.5;
              break;
          }
          Carry next;
          next.values.push_back(y);
          if (two) {
            next.values.push_back(in.values[1] * 0.5 + x);
            if (swap) std::swap(next.values[0], next.values[1]);
          }
          return next;
        });
    for (const Tensor& value : result.values) add(value);
  }

  /// A cache that an input carries from run to run.
  void some_state() {
    const std::int64_t layers = integer(1, 2), b = integer(1, 2), h = integer(1, 2),
                       t = one_of<std::int64_t>({4, 9, 20}), d = one_of<std::int64_t>({8, 32}),
                       s = integer(1, std::min<std::int64_t>(t, 4));
    DType type = one_of<DType>({f32, f32, f16, bf16, DType::q8_0});
    if (type == DType::q8_0 && d % 32 != 0) type = f16;
    if (type != f32) model_.has_halves = true;
    model_.states.insert(inputs_.size());
    // In pages of their own for each row, or one after the other.
    const std::int64_t pages = chance(0.4) ? one_of<std::int64_t>({1, 2, 3}) : 0;  // of a row
    const Tensor cache = input(shape_of(
        {layers, pages == 0 ? b : b * pages + 1, h, pages == 0 ? t : (t + pages - 1) / pages, d},
        type));
    Tensor table;
    if (pages != 0) {
      std::vector<std::int32_t> entries(static_cast<std::size_t>(b * pages));
      std::iota(entries.begin(), entries.end(), integer(0, 1));
      std::reverse(entries.begin(), entries.end());
      table = input_of(HostBuffer::of<std::int32_t>(shape_of({b, pages}, i32), entries));
    }
    const auto scalar = [&](DType dtype, std::int64_t value) {
      HostBuffer number = HostBuffer::zeros(shape_of({}, dtype));
      store_int64(dtype, number.view().data, value);
      return number;
    };
    const bool has_rows = chance(0.4);
    std::vector<std::int32_t> rows;
    for (std::int64_t row = 0; row < (has_rows ? b : 1); ++row) {
      rows.push_back(static_cast<std::int32_t>(integer(0, t - s)));
    }
    const Tensor layer = input_of(scalar(i64, integer(0, layers - 1)));
    const Tensor position = input_of(
        HostBuffer::of<std::int32_t>(has_rows ? shape_of({b}, i32) : shape_of({}, i32), rows));
    const Tensor x = of_shape({b, s, h, d}, f32);
    const Tensor updated = cache_update(cache, layer, x, position, table);
    states_.push_back(updated);
    if (chance(0.7)) {
      const Tensor keys = pages_of(updated, layer);
      add(attention(of_shape({b, s, h, d}, f32), keys, keys, {.causal = true}, position, {}, {},
                    table));
    }
  }

  std::vector<Tensor> outputs() {
    std::vector<Tensor> chosen;
    std::set<const void*> seen;
    const auto take = [&](const Tensor& value) {
      if (chosen.size() < 6) chosen.push_back(value);
    };
    take(values_.back());
    for (std::int64_t i = integer(0, 2); i > 0; --i) take(pick());
    if (chance(0.1)) take(chosen[0]);  // twice
    if (chance(0.1) && !constants_.empty()) take(some_view_of_plain(constants_.back()));
    if (chance(0.1)) take(some_view(values_.front()));  // a view of an input
    for (const Tensor& value : kept_) take(value);
    for (const Tensor& state : states_) chosen.push_back(state);
    return chosen;
  }
  Tensor some_view_of_plain(const Tensor& x) {
    if (is_block(x.dtype()) || x.rank() == 0) return x;
    return slice(x, 0, x.dim(0) / 2);
  }

  /// Keeps the values of what the program reads: what no output needs is not in it.
  void take_used() {
    const Function& main = model_.program.main();
    model_.inputs = inputs_;
    if (main.parameter_count != inputs_.size()) throw std::logic_error("inputs went missing");
    for (const Tensor& value : values_) {
      if (value.dtype() == f64) model_.has_rare_types = true;
      if (value.dtype() == f16 || value.dtype() == bf16) model_.has_halves = true;
    }
  }

  RandomModelPlan plan_;
  std::mt19937_64 engine_;
  Leaves& leaves_;
  RandomModel model_;
  std::vector<HostBuffer> inputs_;
  std::vector<Tensor> constants_;
  std::vector<Tensor> values_;
  std::vector<Tensor> states_;
  std::vector<Tensor> kept_;  // of types that other moves do not take
  int loops_ = 0;
};

class SizedMaker {
 public:
  SizedMaker(const RandomModelPlan& plan, Leaves& leaves)
      : plan_(plan), engine_(plan.seed), leaves_(leaves) {}

  std::vector<Tensor> record() {
    model_.seed = plan_.seed;
    model_.vocabulary = 17;
    model_.moves = static_cast<int>(integer(2, 10));
    const std::int64_t b = symbol("B"), s = symbol("S");
    const Tensor x = leaves_.input("in.0", Shape({b, s, SizedModel::width}, f32));
    const Tensor ids = leaves_.input("in.1", Shape({b, s}, i32));
    values_ = {x, embedding(ids, constant({model_.vocabulary, SizedModel::width}))};
    for (int i = 0; i < model_.moves; ++i) {
      if (plan_.dropped.contains(i)) continue;
      engine_.seed(plan_.seed * 1000003 + static_cast<std::uint64_t>(i) + 1);
      values_.push_back(move(pick()));
    }
    engine_.seed(plan_.seed * 1000003);
    std::vector<Tensor> outputs{values_.back(), pick()};
    if (chance(0.5)) outputs.push_back(slice(pick(), 1, -1));  // the last position
    if (chance(0.3)) outputs.push_back(transpose(pick(), 0, 1));
    return outputs;
  }

  SizedModel model(Program program) {
    model_.program = std::move(program);
    return std::move(model_);
  }

 private:
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(engine_); }
  Tensor pick() { return values_[static_cast<std::size_t>(integer(0, std::ssize(values_) - 1))]; }

  Tensor constant(const Dims& dims, DType dtype = f32, double scale = 1) {
    const std::string name = fmt::format("c{}", model_.weights.size());
    model_.weights[name] = uniform(engine_, shape_of(dims, dtype), scale);
    return leaves_.constant(name, shape_of(dims, dtype));
  }
  /// [n, k], now and then a part of more.
  Tensor matrix(std::int64_t n, std::int64_t k) {
    const double scale = 1.5 / std::sqrt(static_cast<double>(k));
    const DType dtype = k % 32 == 0 && chance(0.4) ? DType::q8_0 : chance(0.3) ? bf16 : f32;
    if (chance(0.3)) return slice(constant({n + 16, k}, dtype, scale), 0, 8, n + 8);
    return constant({n, k}, dtype, scale);
  }

  /// Of the sizes of `x`; K may differ.
  Tensor move(const Tensor& x) {
    const std::int64_t k = x.dim(2);
    switch (integer(0, 11)) {
      case 0:
        return linear(x, matrix(one_of({8, 32, 33, 64}), k));
      case 1:
        return linear(x, matrix(k, k), chance(0.5) ? constant({k}) : Tensor(), x);
      case 2:
        return chance(0.5) ? rms_norm(x, constant({k}), 1e-2) : layer_norm(x, 1e-2);
      case 3:
        return chance(0.5) ? silu(x) : tanh(x * 0.7);
      case 4:
        return x + constant({k});
      case 5:
        return x - mean(x, 2, true);
      case 6:
        return softmax(x, -1);
      case 7: {
        const Tensor h = linear(x, matrix(2 * k, k));
        const auto halves = chunk(h, 2, -1);
        return glu(halves[0], halves[1]);
      }
      case 8:
        return self_attention(x);
      case 9:
        return x * sum(x * 0.05, 1, true);  // over the open length
      case 10: {
        const Tensor weight = constant({k, k}, f32, 1 / std::sqrt(static_cast<double>(k)));
        return tanh(linear(x, weight * 0.5));
      }
      default: {
        std::vector<Layer> layers;
        for (std::int64_t i = integer(0, 3); i > 0; --i) layers.push_back({{matrix(k, k)}});
        return repeat(layers, x, [&](const Layer& layer, const Tensor&, const Tensor& in) {
          return in * 0.5 + linear(rms_norm(in, 1e-2), layer.weights[0]);
        });
      }
    }
  }
  std::int64_t one_of(std::initializer_list<std::int64_t> list) {
    return list.begin()[integer(0, std::ssize(list) - 1)];
  }

  Tensor self_attention(const Tensor& x) {
    const std::int64_t k = x.dim(2), heads = 2, kv_heads = one_of({1, 2}), d = one_of({8, 16, 32});
    const Tensor mixed = linear(x, matrix((heads + 2 * kv_heads) * d, k));
    const auto parts = split(mixed, {heads * d, kv_heads * d, kv_heads * d}, 2);
    const Tensor positions = iota(x, 1);
    const auto with_heads = [&](const Tensor& part, std::int64_t count) {
      return split_axis(part, 2, {count, d});
    };
    const Tensor q = rope(with_heads(parts[0], heads), positions);
    const Tensor keys = rope(with_heads(parts[1], kv_heads), positions);
    const Tensor y = attention(q, keys, with_heads(parts[2], kv_heads), {.causal = chance(0.7)});
    return linear(merge_axes(y, 2, 3), matrix(k, heads * d));
  }

  RandomModelPlan plan_;
  std::mt19937_64 engine_;
  Leaves& leaves_;
  SizedModel model_;
  std::vector<Tensor> values_;
};

template <class Made>
auto make(const RandomModelPlan& plan) {
  Graph graph(std::size_t{64} << 20);
  FreshLeaves leaves(graph);
  Made maker(plan, leaves);
  const Graph::Recording recording(graph);
  const std::vector<Tensor> outputs = maker.record();
  return maker.model(graph.program(outputs));
}

}  // namespace

RandomModel make_random_model(const RandomModelPlan& plan) { return make<Maker>(plan); }

SizedModel make_sized_model(const RandomModelPlan& plan) { return make<SizedMaker>(plan); }

std::vector<Tensor> replay(const RandomModelPlan& plan, std::span<const Tensor> inputs,
                           const std::map<std::string, Tensor>& constants) {
  GivenLeaves leaves(inputs, constants);
  if (plan.kind == ProgramKind::open_sizes) return SizedMaker(plan, leaves).record();
  return Maker(plan, leaves).record();
}

std::span<const SizedModel::Sizes> SizedModel::some_sizes() {
  static constexpr std::array<Sizes, 9> some{
      {{1, 7}, {1, 1}, {2, 3}, {1, 40}, {1, 1}, {0, 4}, {3, 1}, {2, 3}, {1, 7}}};
  return some;
}

std::vector<HostBuffer> SizedModel::inputs(const Sizes& sizes) const {
  const auto& [batch, length] = sizes;
  std::mt19937_64 engine(seed + static_cast<std::uint64_t>(batch * 1000 + length));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(batch * length));
  for (std::int32_t& id : ids) {
    id = static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(vocabulary));
  }
  return {uniform(engine, Shape({batch, length, width}, f32), 1),
          HostBuffer::of<std::int32_t>(Shape({batch, length}, i32),
                                       std::span<const std::int32_t>(ids))};
}

}  // namespace tenon::testing
