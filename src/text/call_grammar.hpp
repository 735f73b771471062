#pragma once

#include "answer_syntax.hpp"

#include <tenon/text/chat_answer.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// A function that a model may call, and the schema of its arguments.
struct ToolSchema {
  std::string name;
  SchemaValue parameters;
};

/// The tools in a template's variables, as OpenAI's API has them, with or without their "function".
std::vector<ToolSchema> tools_of(const SchemaValue& values);

/// A grammar of calls in GBNF. Errors: those of AnswerFormat::call_grammar().
std::string call_grammar(const CallSyntax& call, const std::vector<ToolSchema>& tools,
                         const CallGrammarOptions& options);

}  // namespace tenon::text
