#pragma once

#include <string>
#include <string_view>

namespace tenon::text {

/// A grammar of the JSON texts that a schema allows, in GBNF; see Grammar::from_json_schema().
std::string grammar_of_json_schema(std::string_view schema);

}  // namespace tenon::text
