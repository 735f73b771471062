// A03: memory runs out at every allocation of a tokenizer's life.
#include "support/failing_memory.hpp"

#include <tenon/text/tokenizer.hpp>

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
