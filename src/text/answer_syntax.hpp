// How answers of a chat template's model are written, found by rendering samples.
#pragma once

#include "schema_value.hpp"

#include <tenon/text/chat.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// What stands in a pattern where a call has its own text.
namespace slot {
constexpr char name = '\x01';
constexpr char id = '\x02';
constexpr char number = '\x03';  ///< digits, such as the call's index
constexpr char key = '\x04';
constexpr char arguments = '\x05';  ///< a JSON object
}  // namespace slot

/// A text of a template around calls, with slots: "<|tool_call_begin|>functions.\x01:\x03<|args|>".
using Pattern = std::string;

/// The parts of a pattern that an answer is compared with: slots, marks (<...>, [...]) and other texts between white space.
std::vector<std::string> pieces_of(std::string_view pattern);

struct CallSyntax {
  enum class Form : std::uint8_t {
    none,
    json,        ///< a JSON value has the name and the arguments
    object,      ///< arguments are an object behind the name
    parameters,  ///< marks around each argument, behind the name
    python,      ///< name(key=value, ...), one or a list of them
    channels,    ///< of gpt-oss: messages to functions
  };
  Form form = Form::none;

  Pattern
      opening;  ///< behind the content, up to the name (json: the value; python: the name or its list)
  Pattern between;  ///< behind the name, up to the arguments (parameters: the first mark)
  Pattern closing;  ///< behind the arguments (json: the value), without what ends a turn
  /// From the end of the arguments to the next name (json: from value to value; parameters: from the last mark). Unset: one
  /// call is all that the template has.
  std::optional<Pattern> next{};

  bool is_list = false;  ///< json, python: calls are items of a list
  std::string list_begin{}, list_separator{},
      list_end{};  ///< json: "[", ", ", "]", with their white space
  Pattern
      body{};  ///< a call from its name, or its value, to the end of its arguments; not of parameters and python
  // json: members of a call, by their names from the outside in; empty: none
  bool name_is_key = false;  ///< {"name of the function": {arguments}}
  std::vector<std::string> name_path{}, arguments_path{}, id_path{};

  std::string quote{};  ///< object: what stands around texts in place of "

  // parameters: key_begin KEY key_end [a type, type_end] VALUE value_end, where the last may have slot::key
  Pattern key_begin{}, key_end{}, type_end{}, value_end{};
  bool has_marks_between = false;  ///< arguments have more between them
  std::string text_type{};         ///< what stands there for a text; empty: no types are written
};

struct AnswerSyntax {
  // Around the reasoning, with no white space at their ends. What begins it may stand in the prompt alone.
  std::string reasoning_begin{}, reasoning_end{};
  bool has_reasoning = false;
  bool starts_reasoning = false;  ///< the prompt ends within it
  /// Marks around content and nothing else: <|START_RESPONSE|>.
  std::vector<std::string> content_marks{};
  CallSyntax call{};
  std::vector<std::string> call_ends{};  ///< tokens that end a turn behind calls
};

/// `values`: variables of a call of format(), as JSON.
AnswerSyntax answer_syntax(const ChatFormat& format, const SchemaValue& values);

}  // namespace tenon::text
