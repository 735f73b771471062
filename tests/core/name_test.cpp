#include "support/expect_error.hpp"

#include <tenon/name.hpp>

#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <catch2/catch.hpp>

namespace tenon {

static_assert(sizeof(Name) == sizeof(void*) && std::is_trivially_destructible_v<Name>);

TEST_CASE("name: equal texts are one name") {
  const Name a("head"), b(std::string("he") + "ad"), c("heads");
  CHECK(a == b);
  CHECK(a.id() == b.id());
  CHECK_FALSE(a == c);
  CHECK(a.text() == "head");
  CHECK(Name::from_id(c.id()) == c);
}

Name passed(Name name) { return name; }

TEST_CASE("name: a text of any kind is a name where one is asked for") {
  const std::string text = "head";
  CHECK(passed(text) == Name("head"));
  CHECK(passed("he" + text.substr(2)) == Name("head"));
  CHECK(passed(std::string_view(text)) == Name("head"));
  CHECK(passed("head") == Name("head"));
}

TEST_CASE("name: the empty name") {
  CHECK(Name().empty());
  CHECK(Name("") == Name());
  CHECK(Name().text().empty());
  CHECK_FALSE(Name("x").empty());
}

TEST_CASE("name: any bytes, up to 255 of them") {
  const std::string binary("\0a\xFF", 3);
  CHECK(Name(binary).text() == binary);
  const std::string longest(255, 'n');
  CHECK(Name(longest).text() == longest);
  testing::expect_error(Errc::limit_exceeded, [&] { Name(longest + 'n'); });
}

TEST_CASE("name: threads agree") {
  constexpr int words = 500;
  std::vector<std::vector<std::uint32_t>> ids(4);
  std::vector<std::thread> threads;
  for (auto& mine : ids) {
    threads.emplace_back([&mine] {
      for (int i = 0; i < words; ++i) mine.push_back(Name("threads " + std::to_string(i)).id());
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& mine : ids) CHECK(mine == ids[0]);
  CHECK(std::set<std::uint32_t>(ids[0].begin(), ids[0].end()).size() == words);
  CHECK(Name::from_id(ids[0][7]).text() == "threads 7");
}

}  // namespace tenon
