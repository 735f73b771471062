#include "support/expect_error.hpp"

#include <tenon/host_buffer.hpp>
#include <tenon/layout.hpp>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {
namespace {

using testing::expect_error;

/// i32 values 1, 2, 3 ... in memory order.
HostBuffer counting(const Shape& shape) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), 1);
  return HostBuffer::of<std::int32_t>(shape, values);
}

std::vector<std::int32_t> values(const HostBuffer& array) {
  const auto all = array.values<std::int32_t>();
  return {all.begin(), all.end()};
}

/// The value at a place given by letter, read as the layout defines it.
std::int32_t value_at(const HostBuffer& array, const std::string& layout,
                      const std::string& letters, std::span<const std::int64_t> place) {
  std::int64_t offset = 0;
  const auto along = [&](char letter) { return place[letters.find(letter)]; };
  const bool blocked = layout.find_first_of("abcdefghijklmnopqrstuvwxyz") != std::string::npos;
  const std::size_t axes = layout.find_first_of("abcdefghijklmnopqrstuvwxyz0123456789");
  const std::int64_t block = blocked ? std::stoll(layout.substr(axes + 1)) : 1;
  for (int i = 0; i < array.shape().rank(); ++i) {
    const char letter = layout[static_cast<std::size_t>(i)];
    std::int64_t index;
    if (std::islower(letter)) {
      index = along(static_cast<char>(std::toupper(letter))) % block;
    } else {
      const bool in_blocks = blocked && std::toupper(layout[axes]) == letter;
      index = along(letter) / (in_blocks ? block : 1);
    }
    offset = offset * array.shape()[i] + index;
  }
  return array.values<std::int32_t>()[static_cast<std::size_t>(offset)];
}

std::vector<std::int64_t> sizes(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

}  // namespace

TEST_CASE("Layout: texts are layouts and back") {
  for (const char* text : {"*", "*C", "NHWC", "NCHWc32", "NCHWc1", "NHWCc*", "OIHWi4", "*HWCc16"}) {
    INFO(text);
    CHECK(to_string(Layout(text)) == text);
  }
  CHECK(Layout() == Layout("*"));
  const Layout blocked("NCHWc32");
  CHECK(blocked.is_blocked());
  CHECK(blocked.block_axis() == 'C');
  CHECK(blocked.block_size() == 32);
  CHECK(blocked.letters() == "NCHW");
  CHECK(blocked.plain() == Layout("NCHW"));
  CHECK_FALSE(Layout("NHWC").is_blocked());
  CHECK(Layout("NHWCc*").is_pattern());
}

TEST_CASE("Layout: what is none") {
  for (const char* text :
       {"",           "nhwc",      "NHNC",       "NHWCd4", "NHWCc",
        "NHWCc3",     "NHWCc64",   "NHWCc032",   "NHWCc0", "NHWCc4x",
        "NHWCc**",    "c32",       "N*C",        "**",     "N-C",
        "NHWCc32c32", "ABCDEFGHI", "ABCDEFGHa4", "NHWC ",  "NHWCc99999999999999999999"}) {
    INFO(text);
    expect_error(Errc::syntax, [&] { Layout{std::string_view(text)}; });
  }
  expect_error(Errc::syntax, [] { Layout{std::string_view("N\0C", 3)}; });
}

TEST_CASE("Layout: axes, patterns, and which shapes fit") {
  const Layout blocked("NCHWc32");
  CHECK(blocked.find_axis('C', 5) == 1);
  CHECK(blocked.find_axis('W', 5) == 3);
  CHECK_FALSE(blocked.find_axis('X', 5));
  CHECK(Layout("*C").find_axis('C', 4) == 3);
  CHECK(Layout("*Cc4").find_axis('C', 4) == 2);

  CHECK(blocked.matches(Layout("NCHWc*")));
  CHECK(blocked.matches(blocked));
  CHECK_FALSE(blocked.matches(Layout("NHWCc*")));
  CHECK_FALSE(blocked.matches(Layout("NCHW")));
  CHECK_FALSE(Layout("NCHW").matches(Layout("NCHWc*")));

  blocked.check(Shape({1, 2, 3, 4, 32}, i8));
  expect_error(Errc::bad_shape, [&] { blocked.check(Shape({1, 2, 3, 4, 16}, i8)); });
  expect_error(Errc::bad_shape, [&] { blocked.check(Shape({1, 2, 3, 32}, i8)); });
  expect_error(Errc::bad_shape, [] { Layout("*HW").check(Shape({3}, i8)); });
  Layout("*").check(Shape({}, i8));
  expect_error(Errc::bad_argument, [] { Layout("NCHWc*").check(Shape({1, 2, 3, 4, 32}, i8)); });
  CHECK(layout_of(Shape({3}, f32)) == Layout("*"));
  CHECK(layout_of(Shape({1, 2, 2, 3}, f32).with_layout("NHWC")) == Layout("NHWC"));
  expect_error(Errc::syntax, [] { layout_of(Shape({3}, f32).with_layout("rows")); });
}

TEST_CASE("relayout: axes change places") {
  const HostBuffer nhwc = counting(Shape({1, 2, 2, 3}, i32));
  const HostBuffer nchw = relayout(nhwc, Layout("NHWC"), Layout("NCHW"));
  CHECK(sizes(nchw.shape()) == std::vector<std::int64_t>{1, 3, 2, 2});
  CHECK(nchw.shape().layout() == Name("NCHW"));
  CHECK(values(nchw) == std::vector<std::int32_t>{1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12});
}

TEST_CASE("relayout: blocks, with zero in the lanes past the end") {
  const HostBuffer hwc = counting(Shape({1, 2, 5}, i32));  // 2 places of 5 channels
  const HostBuffer blocked = relayout(hwc, Layout("HWC"), Layout("CHWc4"));
  CHECK(sizes(blocked.shape()) == std::vector<std::int64_t>{2, 1, 2, 4});
  CHECK(values(blocked) ==
        std::vector<std::int32_t>{1, 2, 3, 4, 6, 7, 8, 9, 5, 0, 0, 0, 10, 0, 0, 0});
  // With the extent the padding goes; without, it becomes values.
  CHECK(values(relayout(blocked, Layout("CHWc4"), Layout("HWC"), 5)) == values(hwc));
  CHECK(relayout(blocked, Layout("CHWc4"), Layout("HWC")).shape()[2] == 8);
  // From one size of block to another.
  CHECK(values(relayout(blocked, Layout("CHWc4"), Layout("HWCc2"), 5)) ==
        std::vector<std::int32_t>{1, 2, 3, 4, 5, 0, 6, 7, 8, 9, 10, 0});
}

TEST_CASE("relayout: unnamed axes stay in front") {
  const HostBuffer array = counting(Shape({2, 2, 3}, i32));
  CHECK(values(relayout(array, Layout("*"), Layout("*"))) == values(array));
  const HostBuffer blocked = relayout(array, Layout("*C"), Layout("*Cc2"));
  CHECK(sizes(blocked.shape()) == std::vector<std::int64_t>{2, 2, 2, 2});
  CHECK(values(blocked).at(2) == 3);
  CHECK(values(blocked).at(3) == 0);
  CHECK(relayout(counting(Shape({}, i32)), Layout("*"), Layout("*")).at({}) == 1);
}

TEST_CASE("relayout: what cannot be") {
  const Shape shape({1, 2, 2, 3}, i32);
  const auto refused = [&](Errc code, const char* from, const char* to, std::int64_t extent = 0) {
    INFO(from << " to " << to);
    expect_error(code, [&] { relayout(shape, Layout(from), Layout(to), extent); });
    expect_error(code, [&] { relayout(counting(shape), Layout(from), Layout(to), extent); });
  };
  refused(Errc::bad_argument, "NHWC", "NHW");
  refused(Errc::bad_argument, "NHWC", "NHWD");
  refused(Errc::bad_argument, "*", "NHWC");
  refused(Errc::bad_argument, "NHWC", "NCHWc*");
  refused(Errc::bad_argument, "NHWC", "NCHW", 3);
  refused(Errc::bad_shape, "NHWCc2", "NHWC");
  refused(Errc::bad_shape, "HWC", "CHW");
  const Shape blocked({2, 4}, i32);
  for (const std::int64_t extent : {-1, 4, 9}) {
    expect_error(Errc::bad_shape, [&] { relayout(blocked, Layout("Cc4"), Layout("C"), extent); });
  }
  CHECK(relayout(blocked, Layout("Cc4"), Layout("C"), 5)[0] == 5);
  expect_error(Errc::unsupported_dtype, [] {
    relayout(HostBuffer::zeros(Shape({2, 32}, DType::q8_0)), Layout("HW"), Layout("WH"));
  });
  expect_error(Errc::call_order, [] { relayout(HostBuffer(), Layout(), Layout()); });
  CHECK(relayout(HostBuffer::zeros(Shape({0, 3}, i32)), Layout("HC"), Layout("CHc4")).shape() ==
        Shape({1, 0, 4}, i32));
}

TEST_CASE("relayout: random arrays and layouts, there and back") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return random() % n; };
  for (int round = 0; round < 300; ++round) {
    std::string letters = "NHWC";
    letters.resize(1 + below(4));
    const auto any_layout = [&] {
      std::string text = letters;
      std::shuffle(text.begin(), text.end(), random);
      if (below(2) == 0) {
        const char axis = letters[below(letters.size())];
        text += static_cast<char>(axis - 'A' + 'a') + std::to_string(1u << below(6));
      }
      return Layout(text);
    };
    std::vector<std::int64_t> dims(letters.size());
    for (auto& dim : dims) dim = static_cast<std::int64_t>(below(7)) + (below(10) == 0 ? 30 : 1);
    const HostBuffer array = counting(Shape(dims, i32));
    const Layout plain(letters);
    const auto extent = [&](const Layout& layout) {
      return layout.is_blocked()
                 ? array.shape()[*plain.find_axis(layout.block_axis(), array.shape().rank())]
                 : 0;
    };
    const Layout a = any_layout(), b = any_layout();
    INFO(to_string(a) << " " << to_string(b) << " " << to_string(array.shape()));
    const HostBuffer in_a = relayout(array, plain, a);
    const HostBuffer in_b = relayout(in_a, a, b, extent(a));
    bool right = true;
    std::int32_t next = 1;
    for_each_index(array.shape(), [&](std::span<const std::int64_t> place) {
      right = right && value_at(in_a, to_string(a), letters, place) == next &&
              value_at(in_b, to_string(b), letters, place) == next;
      ++next;
    });
    CHECK(right);
    CHECK(values(relayout(in_b, b, plain, extent(b))) == values(array));
    // Padding is zero, so that sums agree.
    const auto sum = [](const HostBuffer& x) {
      const auto all = x.values<std::int32_t>();
      return std::accumulate(all.begin(), all.end(), std::int64_t{0});
    };
    CHECK(sum(in_a) == sum(array));
  }
}

}  // namespace tenon
