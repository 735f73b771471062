#include "support/expect_error.hpp"

#include <tenon/io/metadata.hpp>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

io::Metadata example() {
  io::Metadata keys;
  keys.set("name", "gemma");
  keys.set("layers", std::uint32_t{18});
  keys.set("negative", std::int32_t{-1});
  keys.set("large", std::uint64_t{1} << 63);
  keys.set("epsilon", 1e-6f);
  keys.set("flag", true);
  const float scores[] = {0.5f, -1.0f};
  keys.set_array<float>("scores", scores);
  const std::uint32_t counts[] = {1, 2, 0x80000000u};
  keys.set_array<std::uint32_t>("counts", counts);
  const std::string_view tokens[] = {"a", "", "ccc"};
  keys.set_strings("tokens", tokens);
  return keys;
}

}  // namespace

TEST_CASE("metadata: values by type") {
  const io::Metadata keys = example();
  CHECK(keys.get<std::string>("name") == "gemma");
  CHECK(keys.get<std::int64_t>("layers") == 18);
  CHECK(keys.get<std::uint8_t>("layers") == 18);
  CHECK(keys.get<int>("negative") == -1);
  CHECK(keys.get<std::uint64_t>("large") == std::uint64_t{1} << 63);
  CHECK(keys.get<float>("epsilon") == 1e-6f);
  CHECK(keys.get<double>("epsilon") == static_cast<double>(1e-6f));
  CHECK(keys.get<bool>("flag"));
  CHECK(keys.get<std::vector<float>>("scores") == std::vector<float>{0.5f, -1.0f});
  CHECK(keys.get<std::vector<std::uint32_t>>("counts")[2] == 0x80000000u);
  CHECK(keys.get<std::vector<std::string>>("tokens") == std::vector<std::string>{"a", "", "ccc"});
  CHECK(keys.strings("tokens")[2] == "ccc");
}

TEST_CASE("metadata: defaults are for absent keys only") {
  const io::Metadata keys = example();
  CHECK(keys.get_or<float>("absent", 2.0f) == 2.0f);
  CHECK(keys.get_or<float>("epsilon", 2.0f) == 1e-6f);
  CHECK_FALSE(keys.get_optional<int>("absent").has_value());
  CHECK(keys.get_optional<int>("layers") == 18);
  expect_error(Errc::bad_type, [&] { keys.get_or<float>("name", 2.0f); });
  expect_error(Errc::bad_type, [&] { keys.get_optional<int>("name"); });
}

TEST_CASE("metadata: errors name the key, the type found and the one expected") {
  const io::Metadata keys = example();
  CHECK(expect_error(Errc::bad_key, [&] { keys.get<int>("layer"); }) ==
        "BadKey: no key 'layer'; did you mean 'layers'?");
  CHECK(expect_error(Errc::bad_type, [&] { keys.get<int>("name"); }) ==
        "BadType: 'name' is string, expected an integer");
  CHECK(expect_error(Errc::bad_type, [&] { keys.get<std::vector<float>>("tokens"); }) ==
        "BadType: 'tokens' is array of 3 string, expected array of f32");
  expect_error(Errc::bad_type, [&] { keys.get<int>("flag"); });
  expect_error(Errc::bad_type, [&] { keys.get<bool>("layers"); });
  expect_error(Errc::bad_type, [&] { keys.get<float>("layers"); });
  expect_error(Errc::bad_type, [&] { keys.get<std::string>("scores"); });
  expect_error(Errc::bad_type, [&] { keys.get<std::vector<int>>("layers"); });
  expect_error(Errc::bad_type, [&] { keys.strings("name"); });
}

TEST_CASE("metadata: integers that do not fit") {
  const io::Metadata keys = example();
  CHECK(expect_error(Errc::bad_type, [&] {
          keys.get<std::int64_t>("large");
        }).find("9223372036854775808") != std::string::npos);
  expect_error(Errc::bad_type, [&] { keys.get<std::uint32_t>("negative"); });
  expect_error(Errc::bad_type, [&] { keys.get<std::uint64_t>("negative"); });
  expect_error(Errc::bad_type, [&] { keys.get<std::vector<std::int32_t>>("counts"); });
  expect_error(Errc::bad_type, [&] { keys.get<std::vector<std::uint64_t>>("counts"); });
}

TEST_CASE("metadata: copies keep their values when the original changes or goes") {
  io::Metadata copy;
  {
    io::Metadata keys = example();
    copy = keys;
    keys.set("name", "llama");
    CHECK(keys.get<std::string>("name") == "llama");
    CHECK(keys.size() == copy.size());
  }
  CHECK(copy.get<std::string>("name") == "gemma");
  CHECK(copy.strings("tokens")[0] == "a");
}

TEST_CASE("metadata: order is that of setting, and keys are checked") {
  io::Metadata keys = example();
  CHECK(keys.entries()[0].key == "name");
  CHECK(keys.entries()[1].key == "layers");
  keys.set("name", "again");
  CHECK(keys.entries()[0].key == "name");
  CHECK(keys.size() == 9);
  expect_error(Errc::bad_key, [&] { keys.set("", 1); });
  expect_error(Errc::bad_encoding, [&] { keys.set("\xff", 1); });
}

}  // namespace tenon::testing
