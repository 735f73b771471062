// Ops that run when they are called. Whole programs: random_programs --way eager.
#include "support/expect_error.hpp"
#include "support/fake_device.hpp"
#include "support/literals.hpp"
#include "support/op_testing.hpp"
#include "support/remote_backend.hpp"

#include <tenon/backends/cpu.hpp>
#include <tenon/backends/reference.hpp>
#include <tenon/eager.hpp>
#include <tenon/ops.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

/// In memory that an op may write to.
EagerArray array(const HostBuffer& values) {
  Buffer buffer = Buffer::allocate(values.shape(), cpu_device()->default_mem_region());
  copy_elements(values.view(), buffer.host_view());
  return buffer;
}

HostBuffer values(const EagerArray& array) { return array.to_buffer().to_host(); }

std::shared_ptr<const WeightSet> weights_of(std::map<std::string, HostBuffer> values) {
  std::map<std::string, Buffer> buffers;
  for (const auto& [name, value] : values) buffers.emplace(name, value.to_device(cpu_device()));
  return std::make_shared<const WeightSet>(std::move(buffers));
}

Eager eager_with(std::map<std::string, HostBuffer> weights = {}) {
  return Eager(weights_of(std::move(weights)), {make_cpu_backend({}), make_reference_backend({})});
}

class Refusing final : public Backend {
 public:
  std::string_view name() const noexcept override { return "refusing"; }
  MemRegion& region() const override { return cpu_device()->default_mem_region(); }
  std::optional<std::string> refuses(const Step&) const override { return "it does nothing"; }
  std::unique_ptr<Partition> compile(const Lowered&, std::span<const Step>) const override {
    return nullptr;
  }
};

TEST_CASE("an op runs when it is called", "[eager]") {
  Eager eager = eager_with({{"net.w", floats({2, 2}, {1, 0, 0, 2})}, {"b", floats({2}, {10, 20})}});
  const EagerArray x = array(floats({1, 2}, {3, 4}));
  const EagerScope net{"net"};
  EagerArray y = eager.run(Linear{}, x, eager.weight(net, "w"));
  expect_equal(values(y), {3, 8});
  y = eager.run(Add{}, std::move(y), eager.weight("b"));
  expect_equal(values(y), {13, 28});
  expect_equal(values(x), {3, 4});
  CHECK(eager.fallbacks().empty());
}

TEST_CASE("what was compiled is found again, for operands of the same types", "[eager]") {
  Eager eager = eager_with();
  const OpInstance add{Add{}};
  const HostBuffer a = floats({2}, {1, 2}), b = floats({2}, {10, 20}), one = floats({1}, {5});
  const std::vector<const Shape*> types{&a.shape(), &b.shape()};
  CHECK(eager.find(add, types) == nullptr);
  eager.run(Add{}, array(a), array(b));  // given up: another kernel, which overwrites an operand
  CHECK(eager.find(add, types) == nullptr);
  const EagerArray x = array(a), y = array(b);
  eager.run(Add{}, x, y);
  const EagerKernel* const kernel = eager.find(add, types);
  REQUIRE(kernel != nullptr);
  CHECK(kernel->output == a.shape());
  CHECK(kernel->is_brief);
  CHECK_FALSE(kernel->view);
  HostBuffer sum = HostBuffer::zeros(kernel->output);
  const std::vector<std::byte*> operands{a.view().data, b.view().data};
  eager.run(*kernel, operands, sum.view().data);
  expect_equal(sum, {11, 22});

  CHECK(eager.find(OpInstance{Sub{}}, types) == nullptr);
  const std::vector<const Shape*> others{&a.shape(), &one.shape()};
  CHECK(eager.find(add, others) == nullptr);
  const EagerArray strided = eager.run(Permute{.order = {1, 0}}, array(floats({1, 2}, {1, 2})));
  eager.run(Neg{}, strided);
  const Shape column({2, 1}, f32);
  const std::vector<const Shape*> dense{&column};
  CHECK(eager.find(OpInstance{Neg{}}, dense) == nullptr);
}

TEST_CASE("what was compiled says whether it is a view, an update, or long", "[eager]") {
  Eager eager = eager_with();
  const EagerArray x = array(floats({3, 2}, {1, 2, 3, 4, 5, 6}));
  const Shape matrix = x.shape();
  const std::vector<const Shape*> types{&matrix};
  const Slice slice{.axis = 0, .begin = 1, .end = 3, .step = 1};
  eager.run(slice, x);
  const EagerKernel* const view = eager.find(OpInstance(slice), types);
  REQUIRE(view != nullptr);
  REQUIRE(view->view);
  CHECK(view->view->offset_bytes == 8);

  const Shape large({1 << 18}, f32);
  eager.run(Neg{}, array(HostBuffer::zeros(large)));
  const EagerArray many = array(HostBuffer::zeros(large));
  eager.run(Neg{}, many);
  const std::vector<const Shape*> large_types{&large};
  const EagerKernel* const long_work = eager.find(OpInstance{Neg{}}, large_types);
  REQUIRE(long_work != nullptr);
  CHECK_FALSE(long_work->is_brief);
}

TEST_CASE("attributes of one op are not mixed up", "[eager]") {
  Eager eager = eager_with();
  const EagerArray x = array(floats({2, 2}, {1, 2, 3, 4}));
  for (int round = 0; round < 2; ++round) {
    expect_equal(values(eager.run(Sum{{.axes = {0}}}, x)), {4, 6});
    expect_equal(values(eager.run(Sum{{.axes = {1}}}, x)), {3, 7});
    expect_equal(values(eager.run(Sum{{.axes = {1}, .keep_dims = true}}, x)), {3, 7});
  }
}

TEST_CASE("views copy nothing", "[eager]") {
  Eager eager = eager_with();
  const EagerArray x = array(floats({2, 3}, {1, 2, 3, 4, 5, 6}));
  const EagerArray turned = eager.run(Permute{.order = {1, 0}}, x);
  CHECK(turned.view().data == x.view().data);
  expect_equal(values(turned), {1, 4, 2, 5, 3, 6});
  const EagerArray row = eager.run(Select{}, x, EagerArray(1));
  CHECK(row.view().data == x.view().data + 3 * sizeof(float));
  expect_equal(values(eager.run(Neg{}, row)), {-4, -5, -6});
  expect_equal(values(eager.run(Add{}, turned, turned)), {2, 8, 4, 10, 6, 12});
}

TEST_CASE("an index that is out of range is the op's error", "[eager]") {
  Eager eager = eager_with();
  const EagerArray x = array(floats({2}, {1, 2}));
  for (const std::int64_t index : {std::int64_t{2}, std::int64_t{-1}}) {
    expect_error(Errc::out_of_range, [&] { eager.run(Select{}, x, EagerArray(index)); });
  }
}

TEST_CASE("a weight of another Eager is an array like any other", "[eager]") {
  const EagerArray x = array(floats({1, 2}, {1, 1}));
  Eager eager = eager_with({{"w", floats({1, 2}, {1, 2})}});
  EagerArray other;
  {
    const Eager from =
        eager_with({{"w", floats({1, 2}, {10, 20})}, {"only there", floats({1}, {5})}});
    other = from.weight("w");
    const EagerArray unknown = from.weight("only there");
    CHECK(values(eager.run(Neg{}, unknown)).at({0}) == -5);
  }
  for (int i = 0; i < 2; ++i) {
    CHECK(values(eager.run(Linear{}, x, other)).at({0, 0}) == 30);
    CHECK(values(eager.run(Linear{}, x, eager.weight("w"))).at({0, 0}) == 3);
  }
}

TEST_CASE("what was computed in a counter's memory is no counter", "[eager]") {
  // A slice of a weight that a counter selects is packed for each index, one that was computed is not.
  Eager eager = eager_with({{"w", floats({2, 1, 2}, {1, 2, 3, 4})}});
  const EagerArray x = array(floats({1, 2}, {1, 1}));
  const auto product = [&](const EagerArray& index) {
    return values(eager.run(Linear{}, x, eager.run(Select{}, eager.weight("w"), index))).at({0, 0});
  };
  const Shape type({1, 2}, f32);
  const Shape* const types[] = {&type, &type};
  const Linear op;
  const OpInstance linear(op_def<Linear>(), &op);
  CHECK(product(EagerArray(0)) == 3);
  CHECK(eager.find(linear, types) == nullptr);
  EagerArray sum(0);
  sum = eager.run(Add{}, std::move(sum), EagerArray(1));
  CHECK(product(sum) == 7);
  CHECK(eager.find(linear, types) != nullptr);
}

TEST_CASE("an update happens in place only where nobody else sees it", "[eager]") {
  Eager eager = eager_with();
  const auto cache = [] { return array(floats({3, 2}, {1, 2, 3, 4, 5, 6})); };
  const EagerArray fresh = array(floats({2}, {8, 9}));

  EagerArray state = cache();
  const std::byte* const memory = state.view().data;
  state = eager.run(UpdateSlice{}, std::move(state), EagerArray(2), fresh);
  CHECK(state.view().data == memory);
  expect_equal(values(state), {1, 2, 3, 4, 8, 9});
  CHECK(eager.copied_bytes() == 0);

  const EagerArray kept = state;
  state = eager.run(UpdateSlice{}, std::move(state), EagerArray(0), fresh);
  expect_equal(values(kept), {1, 2, 3, 4, 8, 9});
  expect_equal(values(state), {8, 9, 3, 4, 8, 9});
  CHECK(eager.copied_bytes() == 24);

  const EagerArray view = eager.run(Select{}, state, EagerArray(1));
  state = eager.run(UpdateSlice{}, std::move(state), EagerArray(1), fresh);
  expect_equal(values(view), {3, 4});
  CHECK(eager.copied_bytes() == 48);

  EagerArray square = cache();
  EagerArray updated = eager.run(UpdateSlice{}, square, EagerArray(0), fresh);
  expect_equal(values(square), {1, 2, 3, 4, 5, 6});
  CHECK(eager.copied_bytes() == 72);

  Eager weighted = eager_with({{"table", floats({2, 2}, {1, 2, 3, 4})}});
  updated = weighted.run(UpdateSlice{}, weighted.weight("table"), EagerArray(0), fresh);
  expect_equal(values(updated), {8, 9, 3, 4});
  expect_equal(values(weighted.weight("table")), {1, 2, 3, 4});
}

TEST_CASE("a result takes over the memory of an array that is given up", "[eager]") {
  Eager eager = eager_with();
  EagerArray x = array(floats({2}, {1, 2}));
  const std::byte* const memory = x.view().data;
  EagerArray y = eager.run(Neg{}, std::move(x));
  CHECK(y.view().data == memory);
  CHECK_FALSE(x.has_data());  // NOLINT(bugprone-use-after-move): what is tested
  const EagerArray z = eager.run(Add{}, y, y);
  CHECK(z.view().data != memory);
  expect_equal(values(y), {-1, -2});
  const EagerArray sum = eager.run(Add{}, std::move(y), std::move(y));
  expect_equal(values(sum), {-2, -4});
  expect_error(Errc::call_order, [&] { eager.run(Neg{}, x); });
}

TEST_CASE("a caller's buffer is not written to", "[eager]") {
  Eager eager = eager_with();
  const Buffer mine = array(floats({2}, {1, 2})).to_buffer();
  expect_equal(values(eager.run(Neg{}, EagerArray(mine))), {-1, -2});
  expect_equal(mine.to_host(), {1, 2});
}

TEST_CASE("empty arrays and scalars", "[eager]") {
  Eager eager = eager_with();
  const EagerArray none = array(HostBuffer::zeros(Shape({0, 3}, f32)));
  CHECK(eager.run(Neg{}, none).shape() == Shape({0, 3}, f32));
  expect_equal(values(eager.run(Sum{{.axes = {0}}}, none)), {0, 0, 0});
  CHECK(eager.run(Add{}, EagerArray(20), EagerArray(3)).to_int() == 23);
  expect_error(Errc::bad_shape, [&] { static_cast<void>(array(longs({2}, {1, 2})).to_int()); });
  expect_error(Errc::bad_type, [&] { static_cast<void>(array(floats({}, {1})).to_int()); });
}

TEST_CASE("what does not fit is named", "[eager]") {
  Eager eager = eager_with();
  const EagerArray x = array(floats({2}, {1, 2}));
  CHECK(expect_error(Errc::bad_reference, [&] {
          static_cast<void>(eager.weight("none"));
        }).find("none") != std::string::npos);
  expect_error(Errc::shape_mismatch, [&] { eager.run(Add{}, x, array(floats({3}, {1, 2, 3}))); });
  expect_error(Errc::bad_argument, [&] { eager.run(Add{}, x); });
  const Shape square({symbol("N"), symbol("N")}, f32);
  eager.check("f", {{"a", square, array(floats({1, 1}, {1}))}});
  const std::string why = expect_error(
      Errc::bad_input, [&] { eager.check("f", {{"a", square, array(floats({1, 2}, {1, 2}))}}); });
  CHECK(why.find("'a' is f32[1, 2], declared f32[N, N] with N = 1") != std::string::npos);

  const auto device = std::make_shared<FakeDevice>(nullptr, "fake:", std::uint64_t{1} << 20);
  expect_error(Errc::bad_argument,
               [&] { EagerArray(Buffer::allocate(Shape({2}, f32), device->dram())); });
  const auto remote = std::make_shared<RemoteBackend>(
      device, [](const Step&) { return std::optional<std::string>(); });
  expect_error(Errc::bad_argument, [&] { Eager(nullptr, {remote}); });
  expect_error(Errc::bad_argument, [&] { Eager(nullptr, {nullptr}); });
}

TEST_CASE("an op that the first backend refuses is reported", "[eager]") {
  Eager eager(nullptr, {std::make_shared<Refusing>(), make_reference_backend({})});
  const EagerArray x = array(floats({2}, {1, 2}));
  for (int round = 0; round < 2; ++round) eager.run(Neg{}, x);
  REQUIRE(eager.fallbacks().size() == 1);
  CHECK(eager.fallbacks()[0].op == "neg");
  CHECK(eager.fallbacks()[0].backend == "reference");
  CHECK(eager.fallbacks()[0].bytes == 16);
}

TEST_CASE("ops on types that no kernel computes with are composed of others", "[eager]") {
  Eager eager = eager_with({{"w", floats({2, 2}, {1, 2, 3, -1})}});
  const auto complex = [&](const EagerArray& parts) {
    return eager.run(Bitcast{.dtype = c64}, parts);
  };
  const auto parts = [&](const EagerArray& z) {
    return values(eager.run(Bitcast{.dtype = f32}, z));
  };
  const EagerArray x = complex(array(floats({2, 2}, {2, 0, 0, 1})));
  const EagerArray w = complex(eager.weight("w"));
  for (int round = 0; round < 2; ++round) {
    expect_equal(parts(eager.run(Mul{}, x, w)), {2, 4, 1, 3});
  }
  EagerArray sum = eager.run(Add{}, x, w);
  sum = eager.run(Add{}, std::move(sum), x);
  expect_equal(parts(sum), {5, 2, 3, 1});
  expect_equal(parts(x), {2, 0, 0, 1});
  expect_equal(values(eager.run(Abs{}, complex(array(floats({1, 2}, {3, 4}))))), {5});
  expect_equal(parts(eager.run(Cast{.dtype = c64}, array(floats({1}, {3})))), {3, 0});
  CHECK(eager.fallbacks().empty());

  const EagerArray large = array(HostBuffer::of<std::uint64_t>(Shape({2}, u64), {1ull << 63, 7}));
  const EagerArray two = array(HostBuffer::of<std::uint64_t>(Shape({}, u64), {2}));
  expect_equal(values(eager.run(Div{}, large, two)), {0x1p62, 3});
  expect_equal(values(eager.run(Abs{}, large)), {0x1p63, 7});

  const EagerArray three = complex(array(floats({3, 2}, {1, 0, 1, 0, 1, 0})));
  CHECK(expect_error(Errc::shape_mismatch, [&] { eager.run(Mul{}, x, three); }).find("mul") !=
        std::string::npos);
  expect_error(Errc::unsupported_dtype, [&] { eager.run(Erf{}, x); });
}

TEST_CASE("a stop request ends the next call", "[eager]") {
  Eager eager = eager_with();
  std::stop_source stop;
  eager.set_interrupt({.cancel = stop.get_token()});
  const EagerArray x = array(floats({2}, {1, 2}));
  eager.run(Neg{}, x);
  stop.request_stop();
  expect_error(Errc::cancelled, [&] { eager.run(Neg{}, x); });
}

}  // namespace
}  // namespace tenon::testing
