#include "byte_writer.hpp"
#include "support/expect_error.hpp"
#include "temp_folder.hpp"

#include <tenon/io/npy.hpp>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

std::string npy(std::string_view header, std::string_view data, int version = 1) {
  ByteWriter file;
  file.raw("\x93NUMPY").u8(static_cast<std::uint8_t>(version)).u8(0);
  if (version == 1) {
    file.number(static_cast<std::uint16_t>(header.size()));
  } else {
    file.number(static_cast<std::uint32_t>(header.size()));
  }
  return file.raw(header).raw(data).bytes;
}

std::string header(std::string_view descr, std::string_view order, std::string_view shape) {
  return "{'descr': " + std::string(descr) + ", 'fortran_order': " + std::string(order) +
         ", 'shape': " + std::string(shape) + ", }\n";
}

HostBuffer read(std::string_view bytes) {
  const TempFolder folder;
  return io::read_npy(folder.write("a.npy", bytes));
}

void refuse(Errc code, std::string_view bytes) {
  INFO(bytes);
  expect_error(code, [&] { read(bytes); });
}

const std::string four_bytes(4, '\x01');

}  // namespace

TEST_CASE("npy: written and read back, every type") {
  const TempFolder folder;
  for (int i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    const Shape shape({2, 256}, dtype);
    const HostBuffer array = HostBuffer::zeros(shape);
    for (std::int64_t b = 0; b < shape.bytes(); ++b) {
      array.view().data[b] = static_cast<std::byte>(dtype == DType::boolean ? b % 2 : b * 7);
    }
    if (is_block(dtype) || dtype == bf16 || dtype == f8_e4m3 || dtype == f8_e5m2) {
      expect_error(Errc::unsupported_dtype, [&] { io::write_npy(folder / "a.npy", array); });
      continue;
    }
    io::write_npy(folder / "a.npy", array);
    const HostBuffer back = io::read_npy(folder / "a.npy");
    REQUIRE(back.shape() == shape);
    CHECK(std::equal(back.bytes(), back.bytes() + shape.bytes(), array.bytes()));
    const std::string bytes = read_bytes(folder / "a.npy");
    CHECK((bytes.size() - static_cast<std::size_t>(shape.bytes())) % 64 == 0);
  }
}

TEST_CASE("npy: scalars, vectors, empty arrays and views") {
  const TempFolder folder;
  const auto there_and_back = [&](const HostBuffer& array) {
    io::write_npy(folder / "a.npy", array);
    return io::read_npy(folder / "a.npy");
  };
  CHECK(there_and_back(HostBuffer::of<float>(Shape({}, f32), {2.5f})).values<float>()[0] == 2.5f);
  CHECK(there_and_back(HostBuffer::zeros(Shape({3}, i8))).shape() == Shape({3}, i8));
  CHECK(there_and_back(HostBuffer::zeros(Shape({3, 0}, f64))).shape() == Shape({3, 0}, f64));
  const HostBuffer array = HostBuffer::of<std::int32_t>(Shape({2, 2}, i32), {1, 2, 3, 4});
  const int order[] = {1, 0};
  CHECK(there_and_back(array.permute(order)).values<std::int32_t>()[1] == 3);
}

TEST_CASE("npy: column-major and big-endian files, and all versions") {
  const std::string data = ByteWriter()
                               .number(1.0f)
                               .number(2.0f)
                               .number(3.0f)
                               .number(4.0f)
                               .number(5.0f)
                               .number(6.0f)
                               .bytes;
  const HostBuffer columns = read(npy(header("'<f4'", "True", "(2, 3)"), data));
  CHECK(columns.shape() == Shape({2, 3}, f32));
  const float expected[] = {1, 3, 5, 2, 4, 6};
  CHECK(std::ranges::equal(columns.values<float>(), expected));
  CHECK(read(npy(header("'>i2'", "False", "(2,)"), four_bytes + "")).values<std::int16_t>()[0] ==
        257);
  CHECK(read(npy(header("'>i4'", "False", "()"), std::string("\x00\x00\x01\x02", 4)))
            .values<std::int32_t>()[0] == 258);
  for (const int version : {1, 2, 3}) {
    CHECK(read(npy(header("\"<i4\"", "False", "()"), four_bytes, version)).shape() ==
          Shape({}, i32));
  }
}

TEST_CASE("npy: frames that are not right") {
  const std::string good = npy(header("'<i4'", "False", "()"), four_bytes);
  for (std::size_t size = 0; size < good.size(); ++size) {
    refuse(Errc::truncated, std::string_view(good).substr(0, size));
  }
  refuse(Errc::trailing_data, good + "x");
  refuse(Errc::bad_magic, "\x93NUMPX" + good.substr(6));
  refuse(Errc::unsupported_version, npy("", "", 4));
  refuse(Errc::unsupported_version, npy("", "", 0));
  io::Limits limits;
  limits.header_bytes = 10;
  const TempFolder folder;
  const auto path = folder.write("a.npy", good);
  expect_error(Errc::limit_exceeded, [&] { io::read_npy(path, limits); });
}

TEST_CASE("npy: dictionaries that are not right") {
  const auto bad = [](Errc code, std::string_view text) { refuse(code, npy(text, four_bytes)); };
  for (const char* text : {"", "{", "[]", "{}x", "{'descr'}", "{'descr':}", "{'descr': 'i4}",
                           "{'descr': '<i4' 'shape': ()}", "{'descr': '<i4', 'fortran_order': 1}",
                           "{'d\\x65scr': '<i4'}"}) {
    bad(Errc::syntax, text);
  }
  bad(Errc::bad_key, "{}");
  bad(Errc::bad_key, "{'descr': '<i4', 'shape': ()}");
  bad(Errc::bad_key, "{'descr': '<i4', 'fortran_order': False, 'shape': (), 'x': 1}");
  bad(Errc::duplicate_name, "{'descr': '<i4', 'descr': '<i4'}");
  for (const char* descr :
       {"'<c16'", "'|O'", "'<U4'", "'<M8[s]'", "'<f16'", "''", "'<'", "[('a', '<i4')]", "'<V2'"}) {
    bad(Errc::unsupported_dtype, header(descr, "False", "()"));
  }
}

TEST_CASE("npy: shapes that are not right") {
  const auto bad = [](Errc code, std::string_view shape) {
    refuse(code, npy(header("'<i4'", "False", shape), four_bytes));
  };
  bad(Errc::bad_shape, "(-1,)");
  bad(Errc::bad_shape, "(1, 1, 1, 1, 1, 1, 1, 1, 1)");
  bad(Errc::shape_overflow, "(9223372036854775808,)");
  bad(Errc::shape_overflow, "(4294967296, 4294967296)");
  bad(Errc::shape_overflow, "(4611686018427387904,)");
  bad(Errc::truncated, "(2,)");
  bad(Errc::truncated, "(1152921504606846976,)");
  bad(Errc::trailing_data, "(0,)");
  bad(Errc::syntax, "(1.5,)");
  bad(Errc::syntax, "(1");
  bad(Errc::syntax, "1");
}

}  // namespace tenon::testing
