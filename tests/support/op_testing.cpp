#include "support/op_testing.hpp"

#include <tenon/ops/bitcast.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <stdexcept>
#include <string>

namespace tenon::testing {
namespace {

std::vector<Shape> shapes_of(std::span<const HostBuffer> inputs) {
  std::vector<Shape> shapes;
  for (const HostBuffer& input : inputs) shapes.push_back(input.shape());
  return shapes;
}

std::vector<HostView> views_of(std::span<const HostBuffer> inputs) {
  std::vector<HostView> views;
  for (const HostBuffer& input : inputs) views.push_back(input.view());
  return views;
}

bool same_bytes(const HostBuffer& a, const HostBuffer& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.bytes(), b.bytes(), static_cast<std::size_t>(a.shape().bytes())) == 0;
}

void check_strided_inputs(const OpInstance& op, std::span<const HostBuffer> inputs,
                          const HostBuffer& want) {
  std::vector<HostBuffer> scattered;
  for (const HostBuffer& input : inputs) scattered.push_back(strided(input));
  INFO(op.def()->name << ": inputs of odd strides change the result");
  CHECK(same_bytes(run_reference(op, scattered), want));
}

void check_in_place(const OpInstance& op, std::span<const HostBuffer> inputs,
                    const HostBuffer& want) {
  for (std::size_t i = 0; i < inputs.size() && i < 32; ++i) {
    const bool may = (op.def()->traits.in_place_inputs >> i & 1u) != 0;
    if (!may || !(inputs[i].shape() == want.shape())) continue;
    std::vector<HostBuffer> own(inputs.begin(), inputs.end());
    own[i] = inputs[i].contiguous();
    op.def()->reference(op.attributes(), views_of(own), own[i].view());
    INFO(op.def()->name << ": overwriting input " << i << " changes the result");
    CHECK(same_bytes(own[i], want));
  }
}

/// Whether the input's storage can be shared; then the elements must be the right ones.
bool check_view(const OpInstance& op, const HostBuffer& input, const HostBuffer& want) {
  ViewPlacement placement;
  if (!op.def()->view(op.attributes(), input.view(), want.shape(), placement)) return false;
  const HostView placed(input.view().data + placement.offset_bytes, want.shape(),
                        placement.strides);
  const HostBuffer copy = HostBuffer::uninitialized(want.shape());
  copy_elements(placed, copy.view());
  INFO(op.def()->name << ": the view places other elements than the reference copies");
  CHECK(same_bytes(copy, want));
  return true;
}

/// Whether the view of a dense operand is promised: its bits as a wider type may not be aligned.
bool must_share(const OpInstance& op, DType from, DType to) {
  if (op.def() != &op_def<Bitcast>()) return true;
  return is_complex(to) || block_bytes(to) <= block_bytes(from);
}

std::uint64_t process_seed() {
  static const std::uint64_t seed = [] {
    const char* text = std::getenv("TENON_TEST_SEED");
    const std::uint64_t value =
        text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
    std::cout << "TENON_TEST_SEED=" << value << '\n';
    return value;
  }();
  return seed;
}

}  // namespace

Shape infer_op(const OpInstance& op, std::span<const Shape> inputs) {
  const OpDef& def = *op.def();
  const auto count = static_cast<int>(inputs.size());
  if (count < def.min_inputs || count > def.max_inputs) {
    fail(Errc::bad_argument, def.name, "number of operands");
  }
  return def.infer(op.attributes(), inputs);
}

HostBuffer run_reference(const OpInstance& op, std::span<const HostBuffer> inputs) {
  HostBuffer output = HostBuffer::uninitialized(infer_op(op, shapes_of(inputs)));
  std::memset(output.view().data, 0xA5, static_cast<std::size_t>(output.shape().bytes()));
  op.def()->reference(op.attributes(), views_of(inputs), output.view());
  return output;
}

HostBuffer apply_op(const OpInstance& op, std::span<const HostBuffer> inputs) {
  HostBuffer output = run_reference(op, inputs);
  check_strided_inputs(op, inputs, output);
  check_in_place(op, inputs, output);
  if (op.def()->view != nullptr) {
    INFO(op.def()->name << ": the view of a dense input must share its storage");
    const bool shares = check_view(op, inputs[0].contiguous(), output);
    CHECK((shares || !must_share(op, inputs[0].shape().dtype(), output.shape().dtype())));
    check_view(op, strided(inputs[0]), output);
  }
  return output;
}

HostBuffer strided(const HostBuffer& dense) {
  static std::deque<HostBuffer> storage;
  const Shape& shape = dense.shape();
  if (is_block(shape.dtype()) || shape.rank() == 0) return dense;
  Strides strides{};
  std::int64_t step = 2 * block_bytes(shape.dtype());
  std::int64_t offset = 0;
  for (int i = 0; i < shape.rank(); ++i) {  // reverse storage order: axis 0 varies fastest
    const auto a = static_cast<std::size_t>(i);
    strides[a] = step;
    step *= shape[i] + 1;
    if (i == 0 && shape[i] > 0) {
      offset = strides[a] * (shape[i] - 1);
      strides[a] = -strides[a];
    }
  }
  storage.push_back(HostBuffer::zeros(Shape({step}, u8)));
  HostBuffer scattered = HostBuffer::borrow(storage.back().view().data + offset, shape, strides);
  copy_elements(dense.view(), scattered.view());
  return scattered;
}

std::vector<double> elements(const HostBuffer& array) {
  if (is_complex(array.shape().dtype())) return elements(array.view_as_real());
  std::vector<double> values;
  for_each_index(array.shape(), [&](std::span<const std::int64_t> index) {
    values.push_back(load_as_double(array.shape().dtype(), array.view().at(index)));
  });
  return values;
}

double dot(const HostBuffer& a, const HostBuffer& b) {
  const std::vector<double> x = elements(a), y = elements(b);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

HostBuffer moved(const HostBuffer& x, const HostBuffer& direction, double by) {
  HostBuffer result = HostBuffer::uninitialized(x.shape());
  const HostView from = x.view(), along = direction.view(), to = result.view();
  const DType type = x.shape().dtype();
  for_each_index(x.shape(), [&](std::span<const std::int64_t> at) {
    store_double(type, to.at(at),
                 load_as_double(type, from.at(at)) +
                     by * load_as_double(direction.shape().dtype(), along.at(at)));
  });
  return result;
}

namespace {

bool is_close(double got, double want, double allowed) {
  if (std::isnan(want)) return std::isnan(got);
  return got == want || std::abs(got - want) <= allowed;
}

template <class Allowed>
void check_elements(const HostBuffer& got, std::span<const double> want, Allowed&& allowed) {
  const std::vector<double> values = elements(got);
  REQUIRE(values.size() == want.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_close(values[i], want[i], allowed(want[i]))) continue;
    FAIL_CHECK("element " << i << " of " << to_string(got.shape()) << ": got "
                          << Catch::StringMaker<double>::convert(values[i]) << ", expected "
                          << Catch::StringMaker<double>::convert(want[i]));
    return;
  }
  CHECK(values.size() == want.size());
}

}  // namespace

void expect_near(const HostBuffer& got, std::initializer_list<double> want, double eps) {
  check_elements(got, {want.begin(), want.size()},
                 [eps](double value) { return eps * std::max(1.0, std::abs(value)); });
}

void expect_equal(const HostBuffer& got, std::initializer_list<double> want) {
  check_elements(got, {want.begin(), want.size()}, [](double) { return 0.0; });
}

void expect_close(const HostBuffer& got, const HostBuffer& want, double absolute, double relative) {
  CHECK(to_string(got.shape().without_tags()) == to_string(want.shape().without_tags()));
  if (!(got.shape() == want.shape())) return;
  check_elements(got, elements(want),
                 [=](double value) { return absolute + relative * std::abs(value); });
}

void expect_type(const Shape& got, std::string_view want) { CHECK(to_string(got) == want); }

Random::Random() : engine_(process_seed()) {}

HostBuffer Random::uniform(const Shape& shape, double low, double high) {
  if (is_block(shape.dtype())) throw std::invalid_argument("blocks hold no single numbers");
  std::uniform_real_distribution<double> values(low, high);
  HostBuffer array = HostBuffer::uninitialized(shape);
  const bool whole = !is_floating(shape.dtype());
  for_each_index(shape, [&](std::span<const std::int64_t> index) {
    const double value = values(engine_);
    store_double(shape.dtype(), array.view().at(index), whole ? std::floor(value) : value);
  });
  return array;
}

std::int64_t Random::integer(std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
}

}  // namespace tenon::testing
