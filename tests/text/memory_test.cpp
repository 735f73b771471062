// A03: memory runs out at every allocation of a tokenizer's life.
#include "support/failing_memory.hpp"

#include <tenon/text/grammar.hpp>
#include <tenon/text/tokenizer.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::text;

namespace {

constexpr std::string_view bpe = R"({
  "added_tokens": [{"id": 5, "content": "<|end|>", "special": true}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4},
            "merges": ["a b", ["Ġ", "ab"]]}
})";

// With steps of many kinds.
constexpr std::string_view unigram_json = R"({
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"},
                 {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"},
                    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}]},
  "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
  "model": {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0], ["a", -2], ["ab", -1], ["▁", -1]]}
})";

}  // namespace

TEST_CASE("A03: memory runs out while a file with steps of its own is read and used") {
  const std::vector<std::int32_t> want{3, 2, 3, 2, 3, 0};
  const auto use = [] {
    const Tokenizer tokenizer = Tokenizer::from_json_text(unigram_json);
    const auto ids = tokenizer.encode("ab  ａb!");
    static_cast<void>(tokenizer.decode(ids));
    return ids;
  };
  testing::fail_allocations(300, [&] { static_cast<void>(use()); }, [&] { CHECK(use() == want); });
}

TEST_CASE("A03: memory runs out while a tokenizer is read and used") {
  const std::vector<std::int32_t> want{3, 4, 5};
  const auto use = [] {
    const Tokenizer tokenizer = Tokenizer::from_json_text(bpe);
    const auto ids = tokenizer.encode("ab ab<|end|>");
    static_cast<void>(tokenizer.decode(ids));
    static_cast<void>(tokenizer.piece(4));
    static_cast<void>(tokenizer.tables());
    return ids;
  };
  testing::fail_allocations(300, [&] { static_cast<void>(use()); }, [&] { CHECK(use() == want); });
}

TEST_CASE("A03: memory runs out while grammars are made and followed") {
  const std::string_view schema =
      R"({"type": "object", "additionalProperties": {"type": "null"}, "required": ["b"], "properties":
          {"b": {"pattern": "^[a-c]+$"}, "é": {"type": "integer", "minimum": -12}}})";
  const std::array<bool, 4> want{true, false, true, true};
  const auto use = [&] {
    GrammarMatcher matcher(Grammar::from_json_schema(schema));
    return std::array<bool, 4>{matcher.push(R"({"b": "abc",)"), matcher.push("]"),
                               matcher.push(R"("é":-1, "x" :null})"), matcher.may_end()};
  };
  testing::fail_allocations(600, [&] { static_cast<void>(use()); }, [&] { CHECK(use() == want); });

  // One that lives on is where it was, whatever it was doing when there was no memory.
  const Tokenizer tokenizer = Tokenizer::from_json_text(bpe);
  const auto grammar = Grammar::parse("root ::= \" \"? \"ab\" root \"b\"? | \"\"");  // ever deeper
  TokenConstraint constraint(grammar, tokenizer);
  std::size_t pushed = 0;
  testing::fail_allocations(
      200,
      [&] {
        for (const std::int32_t id : {3, 4}) {
          static_cast<void>(constraint.allowed());
          constraint.push(id);
          ++pushed;
        }
      },
      [&] {
        TokenConstraint fresh(grammar, tokenizer);
        for (std::size_t i = 0; i < pushed; ++i) fresh.push(i % 2 == 0 ? 3 : 4);
        CHECK(std::ranges::equal(constraint.allowed(), fresh.allowed()));
        if (pushed % 2 != 0) {
          constraint.push(4);
          ++pushed;
        }
      });
}
