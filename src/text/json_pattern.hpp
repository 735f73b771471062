#pragma once

#include <string>
#include <string_view>

namespace tenon::text {

/// A GBNF expression of the texts in which a regular expression (ECMA-262, as JSON Schema's `pattern` has it)
/// finds a match, each spelled as JSON spells it between the quotes of a string. Control characters but those
/// with an escape of two characters are left out. It uses the rule `char` for any character.
///
/// Errors: bad_argument (a malformed expression), unsupported (a construct, by name).
std::string grammar_of_pattern(std::string_view pattern);

/// `text` as a GBNF literal.
std::string grammar_literal(std::string_view text);

}  // namespace tenon::text
