#include "expect_refused.hpp"
#include "safetensors_maker.hpp"

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

std::string pair(std::string_view a_offsets, std::string_view b_offsets, std::size_t data_bytes) {
  return safetensors("{" + declare("a", "F32", "[2]", a_offsets) + "," +
                         declare("b", "F32", "[2]", b_offsets) + "}",
                     data_bytes);
}

}  // namespace

TEST_CASE("S07: every byte belongs to exactly one tensor") {
  accepted(pair("[8,16]", "[0,8]", 16), "m.safetensors",
           [](const io::File& file) { CHECK(file.tensors()[0].name == "b"); });
  refused_safetensors(Errc::overlap, pair("[0,8]", "[4,12]", 12));
  refused_safetensors(Errc::overlap, pair("[0,8]", "[0,8]", 8));
  refused_safetensors(Errc::hole, pair("[0,8]", "[9,17]", 17));
  refused_safetensors(Errc::hole, pair("[8,16]", "[16,24]", 24));
  const std::string words = refused_safetensors(Errc::trailing_data, pair("[0,8]", "[8,16]", 17));
  CHECK(contains(words, "1 bytes after"));
  refused_safetensors(Errc::trailing_data, safetensors("{}", 1));
}

TEST_CASE("S08: ranges that cannot be") {
  for (const char* offsets :
       {"[8,0]", "[0,9]", "[0,4096]", "[-8,0]", "[0,-8]", "[0,18446744073709551615]",
        "[0,18446744073709551616]", "[18446744073709551608,18446744073709551616]",
        "[0,99999999999999999999999]", "[]", "[0]", "[0,8,16]"}) {
    INFO(offsets);
    refused_safetensors(Errc::bad_offset, safetensors(one_tensor("[2]", offsets), 8));
  }
}

TEST_CASE("S09: numbers that are no plain integers") {
  for (const char* number : {"4.0", "1e2", "-0", "2E0", "2.5", "-0.0"}) {
    INFO(number);
    const std::string list = "[" + std::string(number) + "]";
    const std::string range = "[0," + std::string(number) + "]";
    refused_safetensors(Errc::syntax, safetensors(one_tensor(list, "[0,8]"), 8));
    refused_safetensors(Errc::syntax, safetensors(one_tensor("[2]", range), 8));
  }
  for (const char* number : {"02", "+2", "0x2", "NaN", "Infinity", ".5", "2."}) {
    INFO(number);
    refused_safetensors(Errc::syntax,
                        safetensors(one_tensor("[" + std::string(number) + "]", "[0,8]"), 8));
  }
}

TEST_CASE("S09: integers above 2^53 keep every bit") {
  // 2^53 + 1 columns of nothing: the size survives, and no bytes are needed.
  accepted(safetensors(one_tensor("[9007199254740993,0]", "[0,0]", "U8")), "m.safetensors",
           [](const io::File& file) { CHECK(file.at("x").shape[0] == 9'007'199'254'740'993); });
  CHECK(contains(refused_safetensors(Errc::bad_offset,
                                     safetensors(one_tensor("[2]", "[0,9007199254740993]"), 8)),
                 "9007199254740993"));
}

TEST_CASE("S10: bytes that are not what the shape takes") {
  for (const char* shape : {"[1]", "[3]", "[2,2]", "[]", "[0]"}) {
    INFO(shape);
    const std::string words =
        refused_safetensors(Errc::bad_shape, safetensors(one_tensor(shape, "[0,8]"), 8));
    CHECK(contains(words, "'x'"));
  }
  refused_safetensors(Errc::bad_shape, safetensors(one_tensor("[2]", "[0,8]", "F16"), 8));
}

TEST_CASE("S11: shapes that overflow") {
  for (const char* shape :
       {"[2,18446744073709551614]", "[2,9223372036854775807]", "[4294967296,4294967296]",
        "[18446744073709551616]", "[2305843009213693952]"}) {
    INFO(shape);
    refused_safetensors(Errc::shape_overflow, safetensors(one_tensor(shape, "[0,8]"), 8));
  }
  refused_safetensors(Errc::bad_shape, safetensors(one_tensor("[-2]", "[0,8]"), 8));
  refused_safetensors(Errc::bad_shape,
                      safetensors(one_tensor("[-99999999999999999999]", "[0,8]"), 8));
  refused_safetensors(Errc::bad_shape, safetensors(one_tensor("[1,1,1,1,1,1,1,1,2]", "[0,8]"), 8));
}

TEST_CASE("S13: element types") {
  for (const char* dtype : {"F128", "f32", "", "F8_E8M0", "C128"}) {
    INFO(dtype);
    const std::string words = refused_safetensors(
        Errc::unsupported_dtype, safetensors(one_tensor("[2]", "[0,8]", dtype), 8));
    CHECK(contains(words, "'x'"));
    CHECK(contains(words, std::string("'") + dtype + "'"));
  }
  for (const char* dtype : {"null", "1", "[]", "{}", "[\"F32\"]"}) {
    INFO(dtype);
    const std::string header =
        std::string(R"({"x":{"dtype":)") + dtype + R"(,"shape":[2],"data_offsets":[0,8]}})";
    refused_safetensors(Errc::unsupported_dtype, safetensors(header, 8));
  }
  refused_safetensors(Errc::unsupported_dtype,
                      safetensors(R"({"x":{"shape":[2],"data_offsets":[0,8]}})", 8));
}

TEST_CASE("safetensors: every element type by its word") {
  struct Word {
    const char* word;
    DType dtype;
  };
  const Word words[] = {{"BOOL", DType::boolean},
                        {"U8", u8},
                        {"I8", i8},
                        {"I16", i16},
                        {"U16", u16},
                        {"F16", f16},
                        {"BF16", bf16},
                        {"I32", i32},
                        {"U32", u32},
                        {"F32", f32},
                        {"F64", f64},
                        {"I64", i64},
                        {"U64", u64},
                        {"C64", c64},
                        {"F8_E4M3", f8_e4m3},
                        {"F8_E5M2", f8_e5m2}};
  for (const Word& word : words) {
    const auto size = static_cast<std::size_t>(3 * block_bytes(word.dtype));
    const std::string header = one_tensor("[3]", "[0," + std::to_string(size) + "]", word.word);
    accepted(safetensors(header, size), "m.safetensors",
             [&](const io::File& file) { CHECK(file.at("x").shape == Shape({3}, word.dtype)); });
  }
}

TEST_CASE("S15: scalars, empty arrays and empty files") {
  accepted(safetensors("{}"), "m.safetensors",
           [](const io::File& file) { CHECK(file.tensors().empty()); });
  const std::string header = "{" + declare("empty", "F32", "[2,0]", "[0,0]") + "," +
                             declare("real", "F32", "[2]", "[0,8]") + "," +
                             declare("scalar", "I32", "[]", "[8,12]") + "," +
                             declare("last", "F64", "[0]", "[12,12]") + "}";
  accepted(safetensors(header, 12), "m.safetensors", [](const io::File& file) {
    CHECK(file.at("empty").shape == Shape({2, 0}, f32));
    CHECK(file.at("empty").data().shape().elements() == 0);
    CHECK(file.at("last").data().shape().elements() == 0);
    CHECK(file.at("scalar").data().values<std::int32_t>()[0] == 0x0b0a0908);
    CHECK(file.at("real").data().values<float>().size() == 2);
  });
}

TEST_CASE("safetensors: fields that are missing, misplaced or unknown") {
  refused_safetensors(Errc::bad_key,
                      safetensors(R"({"x":{"dtype":"F32","data_offsets":[0,8]}})", 8));
  refused_safetensors(Errc::bad_key, safetensors(R"({"x":{"dtype":"F32","shape":[2]}})", 8));
  for (const char* value : {"1", "null", "\"text\"", "[]", "true"}) {
    refused_safetensors(Errc::bad_type, safetensors(std::string("{\"x\":") + value + "}"));
  }
  for (const char* shape :
       {"2", "\"2\"", "null", "{}", "[\"2\"]", "[null]", "[[2]]", "[{}]", "[true]"}) {
    INFO(shape);
    refused_safetensors(Errc::bad_type, safetensors(one_tensor(shape, "[0,8]"), 8));
    refused_safetensors(Errc::bad_type, safetensors(one_tensor("[2]", shape), 8));
  }
  // A field of a later version of the format is skipped, whatever it holds.
  const std::string header =
      R"({"x":{"new":{"shape":[{"dtype":1}],"deep":[[0.5],"\u00e4"]},"dtype":"F32","other":-0.5,)"
      R"("list":[1,-1,[null]],"shape":[2],"data_offsets":[0,8]}})";
  accepted(safetensors(header, 8), "m.safetensors",
           [](const io::File& file) { CHECK(file.at("x").shape == Shape({2}, f32)); });
}

TEST_CASE("safetensors: elements that lie unaligned are copied") {
  const std::string header =
      "{" + declare("a", "U8", "[1]", "[0,1]") + "," + declare("b", "F64", "[2]", "[1,17]") + "}";
  std::string bytes = safetensors(header, 1);
  bytes = ByteWriter().raw(bytes).number(1.25).number(-2.5).bytes;
  accepted(bytes, "m.safetensors", [](const io::File& file) {
    const HostBuffer b = file.at("b").data();
    CHECK(reinterpret_cast<std::uintptr_t>(b.bytes()) % alignof(double) == 0);
    CHECK(b.values<double>()[0] == 1.25);
    CHECK(b.values<double>()[1] == -2.5);
  });
}

}  // namespace tenon::testing
