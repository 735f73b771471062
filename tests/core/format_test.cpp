#include <tenon/format.hpp>

#include <catch2/catch.hpp>

namespace tenon {

TEST_CASE("format: the library's values in fmt strings") {
  CHECK(fmt::format("{}", Shape({{"b", 8}, 64}, f32)) == "f32[b=8, 64]");
  CHECK(fmt::format("{:>6}|{:<6}|", DType::q4_k, DType::f16) == "  q4_k|f16   |");
  CHECK(fmt::format("{}", Errc::bad_magic) == "BadMagic");
  CHECK(fmt::format("{:*^8}", Name("head")) == "**head**");
  CHECK(fmt::format("{}", MemPtr(std::uint64_t{0x100})) == "addr 0x100");
  CHECK(fmt::format("{}", HostBuffer::of<std::int8_t>(Shape({2}, i8), {1, 2})) == "[1, 2] i8[2]");
}

}  // namespace tenon
