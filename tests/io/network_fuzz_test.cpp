// What must hold of every network on disk, on random programs and on what random damage leaves of
// their JSON.
#include "support/random_program.hpp"
#include "temp_folder.hpp"

#include <tenon/error.hpp>
#include <tenon/io/network.hpp>

#include <random>
#include <string>

#include <catch2/catch.hpp>

namespace tenon::testing {
namespace {

io::Network random_network(std::uint64_t seed) {
  RandomProgram random(seed);
  io::Network net;
  net.program =
      random.make({.instructions = 14, .callees = static_cast<int>(random.integer(0, 2))});
  for (std::int64_t i = random.integer(0, 3); i > 0; --i) {
    auto& to = random.chance(0.5) ? net.weights : net.program.folded;
    const Shape shape({random.integer(0, 5), random.integer(1, 3)}, f32);
    to.emplace("extra." + std::to_string(i), random.value(shape));
  }
  return net;
}

bool same_constants(const std::map<std::string, HostBuffer>& a,
                    const std::map<std::string, HostBuffer>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    const auto bytes = x.second.shape().bytes();
    return x.first == y.first && x.second.shape() == y.second.shape() &&
           std::equal(x.second.bytes(), x.second.bytes() + bytes, y.second.bytes());
  });
}

/// A few of: a byte lost, doubled or replaced; a piece lost, doubled or moved; a word of the
/// format.
std::string damaged(std::string text, std::mt19937_64& engine) {
  static constexpr std::string_view pieces[] = {"{",
                                                "}",
                                                "[",
                                                "]",
                                                ",",
                                                ":",
                                                "\"",
                                                "\\",
                                                "null",
                                                "true",
                                                "-1",
                                                "0",
                                                "1e999",
                                                "9223372036854775808",
                                                "\"name\"",
                                                "\"op\"",
                                                "\"inputs\"",
                                                "\"const\"",
                                                "\"repeat\"",
                                                "\"scope\"",
                                                "\"type\":{\"dtype\":\"f32\",\"shape\":[]}",
                                                "\xFF",
                                                "\n",
                                                "1.5",
                                                "\"_\""};
  const auto below = [&](std::size_t n) {
    return n == 0 ? 0 : std::uniform_int_distribution<std::size_t>(0, n - 1)(engine);
  };
  for (std::size_t n = 1 + below(3); n > 0; --n) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = below(std::min<std::size_t>(text.size() - at, 40) + 1);
    // Half of the time a whole token changes places with another: most of such texts are JSON.
    const auto token = [&](std::size_t from) {
      const std::size_t begin = text.find('"', from);
      if (begin == std::string::npos) return std::pair{text.size(), std::size_t{0}};
      const std::size_t end = text.find('"', begin + 1);
      return std::pair{begin, end == std::string::npos ? 0 : end + 1 - begin};
    };
    switch (below(8)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, pieces[below(std::size(pieces))]);
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 3:
        text.insert(below(text.size() + 1), text.substr(at, length));
        break;
      default: {
        const auto [to, size] = token(at);
        const auto [from, count] = token(below(text.size() + 1));
        const std::string word = from < text.size() ? text.substr(from, count) : "";
        if (to < text.size()) text.replace(to, size, word);
        break;
      }
    }
  }
  return text;
}

}  // namespace

TEST_CASE("network: random programs come back the same, and are written the same again") {
  const std::uint64_t first = fuzz_seed(1);
  const TempFolder folder;
  for (std::uint64_t seed = first; seed < first + static_cast<std::uint64_t>(fuzz_rounds(120));
       ++seed) {
    const io::Network net = random_network(seed);
    INFO("seed " << seed << "\n" << print(net.program));
    io::save_network(net, folder / "a.json", folder / "a.raw");
    const io::Network again = io::load_network(folder / "a.json", {}, {.strict = true});
    REQUIRE(same_program(again.program, net.program));
    REQUIRE(same_constants(again.weights, net.weights));
    REQUIRE(same_constants(again.program.folded, net.program.folded));
    const std::string text = read_bytes(folder / "a.json");
    const std::string raw = read_bytes(folder / "a.raw");
    io::save_network(again, folder / "a.json", folder / "a.raw");
    REQUIRE(read_bytes(folder / "a.json") == text);
    REQUIRE(read_bytes(folder / "a.raw") == raw);
  }
}

TEST_CASE("network: damaged JSON gives errors with a place, or networks that can be saved") {
  const std::uint64_t first = fuzz_seed(1000);
  std::mt19937_64 engine(first);
  const TempFolder folder;
  int refused = 0, accepted = 0, beyond_syntax = 0;
  for (int round = 0; round < fuzz_rounds(40); ++round) {
    const io::Network net = random_network(first + static_cast<std::uint64_t>(round));
    io::save_network(net, folder / "a.json", folder / "a.raw");
    const std::string whole = read_bytes(folder / "a.json");
    for (int i = 0; i < 40; ++i) {
      const std::string text = damaged(whole, engine);
      INFO("seed " << first << ", round " << round << "\n" << text);
      const auto json = folder.write("damaged.json", text);
      try {
        const io::Network read = io::load_network(json);
        ++accepted;
        io::save_network(read, folder / "b.json", folder / "b.raw");
        REQUIRE(same_program(io::load_network(folder / "b.json").program, read.program));
      } catch (const Error& error) {
        ++refused;
        beyond_syntax += error.code() != Errc::syntax ? 1 : 0;
        INFO(error.what());
        REQUIRE(error.code() != Errc::internal);
        const bool is_raw = error.where().starts_with("a.raw");  // of another length, or absent
        const bool no_file = error.where().starts_with(folder.path().string());
        REQUIRE((error.where().starts_with("damaged.json") || is_raw || no_file));
      }
    }
  }
  CHECK(refused > accepted);
  CHECK(accepted > 0);
  CHECK(beyond_syntax > 2 * fuzz_rounds(40));
}

}  // namespace tenon::testing
