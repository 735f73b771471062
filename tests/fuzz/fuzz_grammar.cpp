// Any bytes as a grammar or a schema, and a text that it is to allow or not.
#include "fuzz/memory_file.hpp"
#include "fuzz/sections.hpp"
#include "fuzz/targets.hpp"

#include <tenon/error.hpp>
#include <tenon/text/grammar.hpp>

#include <string>

namespace tenon::testing {

void fuzz_grammar(Bytes bytes) {
  const auto parts = split_sections(bytes, 2);
  if (parts.empty()) return;
  try {
    const auto grammar = parts[0].starts_with('{') ? text::Grammar::from_json_schema(parts[0])
                                                   : text::Grammar::parse(parts[0]);
    const std::string_view text = parts.size() > 1 ? parts[1] : std::string_view();
    text::GrammarMatcher at_once(grammar), by_bytes(grammar);
    const bool is_allowed = at_once.push(text);
    bool is_allowed_by_bytes = true;
    for (std::size_t i = 0; i < text.size() && is_allowed_by_bytes; ++i) {
      is_allowed_by_bytes = by_bytes.push(text.substr(i, 1));
    }
    if (is_allowed != is_allowed_by_bytes) fail("allowed in one piece only");
    if (is_allowed && at_once.may_end() != by_bytes.may_end()) {
      fail("ends in one piece only");
    }
    static_cast<void>(at_once.may_continue());
  } catch (const Error& error) {
    if (error.code() == Errc::internal) fail("an internal error");
  }
}

}  // namespace tenon::testing
