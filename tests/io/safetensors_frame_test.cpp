#include "expect_refused.hpp"
#include "safetensors_maker.hpp"

#include <catch2/catch.hpp>

namespace tenon::testing {
TEST_CASE("safetensors: two tensors and metadata") {
  const std::string header = "{" + declare("b", "I32", "[2,2]", "[8,24]") + "," +
                             R"("__metadata__":{"format":"pt","k\u00e9":"v\n"},)" +
                             declare("a", "F32", "[2]", "[0,8]") + "}";
  accepted(safetensors(header, 24), "model.safetensors", [](const io::File& file) {
    CHECK(file.format() == io::Format::safetensors);
    REQUIRE(file.tensors().size() == 2);
    CHECK(file.tensors()[0].name == "a");  // in the order of the data
    CHECK(file.at("b").shape == Shape({2, 2}, i32));
    CHECK(file.at("b").data().values<std::int32_t>()[0] == 0x0b0a0908);
    CHECK(file.metadata().get<std::string>("format") == "pt");
    CHECK(file.metadata().get<std::string>("k\xc3\xa9") == "v\n");
    CHECK(file.metadata().size() == 2);
  });
}

TEST_CASE("safetensors: a file cut at every byte") {
  const std::string header = "{" + declare("a", "F32", "[2]", "[0,8]") + "," +
                             declare("b", "I32", "[2,2]", "[8,24]") + "}";
  const std::string whole = safetensors(header, 24);
  const TempFolder folder;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO("cut at " << size);
    const auto path = folder.write("m.safetensors", std::string_view(whole).substr(0, size));
    // Once the header is whole, the range of a tensor is what lies beyond the end.
    expect_refused(size < 8 + header.size() ? Errc::truncated : Errc::bad_offset, path);
  }
  CHECK(tensor_count(folder.write("m.safetensors", whole)) == 2);
}

TEST_CASE("S01: header lengths that cannot be") {
  refused_safetensors(Errc::truncated, "");
  refused_safetensors(Errc::truncated, "1234567");
  refused_safetensors(Errc::truncated, safetensors("", 0));
  refused_safetensors(Errc::truncated, safetensors("{}", 8, 0));
  refused_safetensors(Errc::limit_exceeded, safetensors("{}", 0, 100'000'001));
  refused_safetensors(Errc::limit_exceeded, safetensors("{}", 0, ~std::uint64_t{0}));
  refused_safetensors(Errc::limit_exceeded, safetensors("{}", 0, ~std::uint64_t{0} - 7));
}

TEST_CASE("S02: a header longer than the file") {
  refused_safetensors(Errc::truncated, safetensors("{}", 0, 3));
  refused_safetensors(Errc::truncated, safetensors("{}", 0, 100'000'000));
}

TEST_CASE("S03: spaces behind the header are padding; nothing else is") {
  for (const std::string header : {"{}", "{}   ", "{ }", "{\r\n\t}"}) {
    accepted(safetensors(header), "m.safetensors",
             [](const io::File& file) { CHECK(file.tensors().empty()); });
  }
  CHECK(contains(refused_safetensors(Errc::syntax, safetensors("\xEF\xBB\xBF{}")),
                 "byte order mark"));
  using namespace std::string_literals;
  for (const std::string& header :
       {"[]"s,   "null"s, "1"s,     "\"x\""s, "[{}]"s,     "   "s,      "{"s,
        "{}}"s,  "{},"s,  "{} {}"s, "// {}"s, "{\"a\":}"s, "{'a':1}"s,  "{\"__metadata__\":{},}"s,
        "  {}"s, "\n{}"s, "{}\n"s,  "{}\t "s, "{}\0"s,     "{}  \0\0"s, "{}\0}"s,
        "{\0}"s}) {
    INFO(header);
    refused_safetensors(Errc::syntax, safetensors(header));
  }
}

TEST_CASE("safetensors: a header that reaches into the data is reported as that") {
  const std::string json = one_tensor("[2]", "[0,8]");
  for (const std::string_view data :
       {std::string_view("\0\0\0\0\0\0\0\0", 8), std::string_view("\1\2\3\4\5\6\7\x08")}) {
    for (const std::uint64_t excess : {1, 4, 8}) {
      std::string file = safetensors(json, 0, json.size() + excess);
      file += data;
      const std::string words = refused_safetensors(Errc::syntax, file);
      CHECK(contains(words, "reaches into the data"));
      CHECK(contains(words,
                     "m"
                     "odel.safetensors:" +
                         std::to_string(8 + json.size())));
    }
  }
  // One that is too short ends inside the JSON.
  refused_safetensors(Errc::syntax, safetensors(json, 8, json.size() - 1));
}

TEST_CASE("S04: encodings") {
  const auto named = [](std::string_view name) {
    return safetensors("{" + declare(name, "F32", "[2]", "[0,8]") + "}", 8);
  };
  refused_safetensors(Errc::syntax, named("a\xff"));
  refused_safetensors(Errc::syntax, named("\xc0\x80"));
  refused_safetensors(Errc::syntax, named("\xed\xa0\x80"));
  refused_safetensors(Errc::syntax, named("\\ud800"));
  refused_safetensors(Errc::syntax, named("\\udc00\\ud800"));
  refused_safetensors(Errc::syntax, named(std::string_view("a\0b", 3)));
  refused_safetensors(Errc::bad_encoding, named("a\\u0000b"));
  refused_safetensors(Errc::bad_key, named(""));
  accepted(named("\\ud83d\\ude00"), "m.safetensors",
           [](const io::File& file) { CHECK(file.find("\xf0\x9f\x98\x80") != nullptr); });
}

TEST_CASE("S05: names that occur twice") {
  const std::string twice =
      "{" + declare("x", "F32", "[2]", "[0,8]") + "," + declare("x", "F32", "[2]", "[8,16]") + "}";
  CHECK(contains(refused_safetensors(Errc::duplicate_name, safetensors(twice, 16)), "'x'"));
  refused_safetensors(Errc::duplicate_name,
                      safetensors(R"({"__metadata__":{},"__metadata__":{}})"));
  refused_safetensors(Errc::duplicate_name, safetensors(R"({"__metadata__":{"a":"1","a":"2"}})"));
  for (const char* field : {R"("dtype":"F32")", R"("shape":[2])", R"("data_offsets":[0,8])"}) {
    const std::string header =
        std::string(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],)") + field + "}}";
    refused_safetensors(Errc::duplicate_name, safetensors(header, 8));
  }
}

TEST_CASE("S16: metadata is strings") {
  for (const char* value : {"1", "1.5", "true", "null", "{}", "[]", "{\"a\":\"b\"}"}) {
    INFO(value);
    refused_safetensors(Errc::bad_type,
                        safetensors(std::string(R"({"__metadata__":{"k":)") + value + "}}"));
  }
  for (const char* value : {"1", "[]", "\"x\"", "null"}) {
    refused_safetensors(Errc::bad_type,
                        safetensors(std::string(R"({"__metadata__":)") + value + "}"));
  }
  const std::string long_text(10'000'000, 'x');
  accepted(safetensors("{\"__metadata__\":{\"k\":\"" + long_text + "\"}}"), "m.safetensors",
           [&](const io::File& file) {
             CHECK((file.metadata().get<std::string_view>("k") == long_text));
           });
}

TEST_CASE("S17: nesting without end") {
  const std::string brackets = R"({"x":{"new":)" + std::string(50'000'000, '[');
  const CpuTimer timer;
  refused_safetensors(Errc::depth_limit, safetensors(brackets));
  CHECK(timer.seconds() < endless_seconds);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  refused_safetensors(Errc::depth_limit, safetensors(objects));
}

TEST_CASE("S18: 200,000 tensors") {
  std::string header = "{";
  for (int i = 0; i < 200'000; ++i) {
    if (i > 0) header += ",";
    const std::string name = "model.layers." + std::to_string(i) + ".a_rather_long_name_of.weight";
    header += declare(name, "F32", "[1,1]",
                      "[" + std::to_string(4 * i) + "," + std::to_string(4 * i + 4) + "]");
    header.append(20, ' ');
  }
  header += "}";
  CHECK(header.size() > 25'000'000);
  const TempFolder folder;
  const auto path = folder.write("m.safetensors", safetensors(header, 800'000));
  const CpuTimer timer;
  const MemoryWatch watch;
  const io::File file = io::open(path);
  const std::ptrdiff_t peak = watch.peak_bytes();
  const double seconds = timer.seconds();
  CHECK(file.tensors().size() == 200'000);
  CHECK(file.at("model.layers.199999.a_rather_long_name_of.weight").offset_bytes ==
        8 + header.size() + 799'996);
  CHECK(peak <= 6 * static_cast<std::ptrdiff_t>(header.size()));
  INFO(seconds << " s, " << peak << " bytes at most");
  CHECK(seconds < endless_seconds);
}

}  // namespace tenon::testing
