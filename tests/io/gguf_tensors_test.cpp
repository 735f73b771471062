#include "expect_refused.hpp"
#include "gguf_maker.hpp"

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

GgufMaker one(GgufMaker::Tensor tensor, std::size_t data_bytes = 64) {
  GgufMaker maker;
  maker.tensor(std::move(tensor));
  maker.data.assign(data_bytes, 'x');
  return maker;
}

constexpr std::uint64_t two_to(int exponent) { return std::uint64_t{1} << exponent; }

}  // namespace

TEST_CASE("G08: numbers of dimensions") {
  accepted(one({"scalar", {}, gguf_f32, 0}).bytes(), "model.gguf", [](const io::File& file) {
    CHECK(file.at("scalar").shape == Shape({}, f32));
    CHECK(file.at("scalar").size_bytes == 4);
  });
  accepted(one({"four", {4, 1, 2, 2}, gguf_f32, 0}).bytes(), "model.gguf",
           [](const io::File& file) { CHECK(file.at("four").shape == Shape({2, 2, 1, 4}, f32)); });
  refused_gguf(Errc::bad_shape, one({"five", {1, 1, 1, 1, 1}, gguf_f32, 0}).bytes());
  refused_gguf(Errc::bad_shape, one({"many", {1}, gguf_f32, 0, 0xFFFFFFFFu}).bytes());
}

TEST_CASE("G09: negative sizes") {
  for (const std::uint64_t size : {~std::uint64_t{0}, two_to(63), two_to(63) + 1}) {
    const std::string words =
        refused_gguf(Errc::bad_shape, one({"t", {4, size}, gguf_f32, 0}).bytes());
    CHECK(contains(words, "'t'"));
    CHECK(contains(words, "axis 1"));
  }
}

TEST_CASE("G10: a size of zero on any axis is an empty array") {
  for (std::size_t axis = 0; axis < 4; ++axis) {
    std::vector<std::uint64_t> dims{2, 2, 2, 2};
    dims[axis] = 0;
    GgufMaker maker = one({"empty", dims, gguf_f32, 0});
    maker.tensor({"next", {2}, gguf_f32, 0});
    accepted(maker.bytes(), "model.gguf", [](const io::File& file) {
      CHECK(file.at("empty").size_bytes == 0);
      CHECK(file.at("empty").data().shape().elements() == 0);
      CHECK(file.at("next").data().shape().elements() == 2);
    });
  }
  accepted(one({"last", {0}, gguf_q8_0, 0}, 0).header(), "model.gguf",
           [](const io::File& file) { CHECK(file.at("last").data().shape().elements() == 0); });
}

TEST_CASE("G11: element counts that overflow") {
  refused_gguf(Errc::shape_overflow, one({"t", {two_to(32), two_to(32)}, gguf_f32, 0}).bytes());
  refused_gguf(Errc::shape_overflow, one({"t", {two_to(62), 4}, gguf_i8, 0}).bytes());
  const std::string words =
      refused_gguf(Errc::shape_overflow, one({"t", {two_to(62), 2, 2, 2}, gguf_i8, 0}).bytes());
  CHECK(contains(words, "'t'"));
}

TEST_CASE("G12: byte counts that overflow") {
  refused_gguf(Errc::shape_overflow, one({"t", {two_to(61)}, gguf_i64, 0}).bytes());
  refused_gguf(Errc::shape_overflow, one({"t", {two_to(62)}, gguf_f32, 0}, 4 << 20).bytes());
  refused_gguf(Errc::truncated, one({"t", {two_to(60)}, gguf_i8, 0}, 4 << 20).bytes());
}

TEST_CASE("G13: sums of sizes that overflow") {
  const std::uint64_t huge = 0x7FFFFFFFFFFFFFC0;
  GgufMaker maker = one({"a", {huge}, gguf_i8, 0});
  maker.tensor({"b", {huge}, gguf_i8, huge});
  refused_gguf(Errc::shape_overflow, maker.bytes());
  GgufMaker halves = one({"a", {two_to(62)}, gguf_i8, 0});
  halves.tensor({"b", {two_to(62)}, gguf_i8, two_to(62)});
  refused_gguf(Errc::shape_overflow, halves.bytes());
  // One that fits alone, but not behind the header.
  refused_gguf(Errc::shape_overflow, one({"a", {two_to(63) - 1}, gguf_i8, 0}).bytes());
}

TEST_CASE("G17: element types that do not exist, and those that Tenon lacks") {
  for (const std::uint32_t type : {0xFFFFFFFFu, 43u, 0x7FFFFFFFu}) {
    const std::string words =
        refused_gguf(Errc::unsupported_dtype, one({"t", {32}, type, 0}).bytes());
    CHECK(contains(words, std::to_string(type)));
    CHECK(contains(words, "does not exist"));
  }
  const std::pair<std::uint32_t, const char*> lacking[] = {
      {4, "q4_2"},      {5, "q4_3"},        {9, "q8_1"},        {31, "q4_0_4_4"},  {32, "q4_0_4_8"},
      {33, "q4_0_8_8"}, {36, "iq4_nl_4_4"}, {37, "iq4_nl_4_8"}, {38, "iq4_nl_8_8"}};
  for (const auto& [type, name] : lacking) {
    CHECK(
        contains(refused_gguf(Errc::unsupported_dtype, one({"t", {256}, type, 0}).bytes()), name));
  }
}

TEST_CASE("gguf: every element type by its id, with its size") {
  struct Id {
    std::uint32_t id;
    const char* name;
  };
  // Ids: the enumeration ggml_type.
  const Id ids[] = {{0, "f32"},    {1, "f16"},      {2, "q4_0"},    {3, "q4_1"},     {6, "q5_0"},
                    {7, "q5_1"},   {8, "q8_0"},     {10, "q2_k"},   {11, "q3_k"},    {12, "q4_k"},
                    {13, "q5_k"},  {14, "q6_k"},    {15, "q8_k"},   {20, "iq4_nl"},  {23, "iq4_xs"},
                    {24, "i8"},    {25, "i16"},     {26, "i32"},    {27, "i64"},     {28, "f64"},
                    {30, "bf16"},  {16, "iq2_xxs"}, {17, "iq2_xs"}, {18, "iq3_xxs"}, {19, "iq1_s"},
                    {21, "iq3_s"}, {22, "iq2_s"},   {29, "iq1_m"},  {34, "tq1_0"},   {35, "tq2_0"},
                    {39, "mxfp4"}, {40, "nvfp4"},   {41, "q1_0"},   {42, "q2_0"}};
  for (const Id& id : ids) {
    INFO(id.name);
    accepted(one({"t", {512}, id.id, 0}, 4096).bytes(), "model.gguf", [&](const io::File& file) {
      const io::TensorEntry& tensor = file.at("t");
      CHECK(name(tensor.shape.dtype()) == id.name);
      CHECK(tensor.size_bytes == static_cast<std::uint64_t>(tensor.shape.bytes()));
    });
  }
}

TEST_CASE("G19: rows that are no whole number of blocks") {
  const std::string words =
      refused_gguf(Errc::bad_shape, one({"t", {255}, gguf_q4_k, 0}, 4096).bytes());
  CHECK(contains(words, "256"));
  CHECK(contains(words, "'t'"));
  refused_gguf(Errc::bad_shape, one({"t", {128, 2}, gguf_q4_k, 0}, 4096).bytes());
  refused_gguf(Errc::bad_shape, one({"t", {}, gguf_q8_0, 0}, 4096).bytes());
}

TEST_CASE("G22: offsets that overlap, leave a gap, change the order or are not aligned") {
  const auto with_offsets = [](std::uint64_t a, std::uint64_t b) {
    GgufMaker maker;
    maker.tensor({"a", {8}, gguf_f32, a}).tensor({"b", {8}, gguf_f32, b});
    maker.data.assign(256, 'x');
    return maker.bytes();
  };
  accepted(with_offsets(0, 32), "model.gguf",
           [](const io::File& file) { CHECK(file.tensors().size() == 2); });
  refused_gguf(Errc::overlap, with_offsets(0, 0));
  refused_gguf(Errc::bad_offset, with_offsets(0, 64));  // a gap
  refused_gguf(Errc::bad_offset, with_offsets(32, 0));  // the other order
  refused_gguf(Errc::bad_offset, with_offsets(0, 16));  // not aligned
  refused_gguf(Errc::bad_offset, with_offsets(0, 33));
  refused_gguf(Errc::bad_offset, with_offsets(0, two_to(63)));
  refused_gguf(Errc::bad_offset, with_offsets(~std::uint64_t{0}, 32));
}

TEST_CASE("G23: tensors that end beyond the file") {
  const std::string words =
      refused_gguf(Errc::truncated, one({"t", {17}, gguf_f32, 0}, 64).bytes());
  CHECK(contains(words, "'t'"));
  refused_gguf(Errc::truncated, one({"t", {1}, gguf_f32, 0}, 0).bytes());
  accepted(one({"t", {16}, gguf_f32, 0}, 64).bytes(), "model.gguf",
           [](const io::File& file) { CHECK(file.at("t").data().values<float>().size() == 16); });
}

}  // namespace tenon::testing
