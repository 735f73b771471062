// Any bytes as a chat template, and as what a message says.
#include "fuzz/memory_file.hpp"
#include "fuzz/sections.hpp"
#include "fuzz/targets.hpp"

#include <tenon/error.hpp>
#include <tenon/text/chat.hpp>

#include <string>

namespace tenon::testing {

void fuzz_chat_template(Bytes bytes) {
  const auto parts = split_sections(bytes, 2);
  if (parts.empty()) return;
  try {
    const auto format = text::ChatFormat::from_template(
        parts[0], {.bos_token = "<s>", .eos_token = "</s>", .date = "26 Jul 2024"});
    const std::string said(parts.size() > 1 ? parts[1] : std::string_view());
    const text::ChatMessage messages[] = {
        {"system", "short"}, {"user", said}, {"assistant", "yes"}, {"user", said}};
    const text::Prompt prompt = format.format(
        messages, true, R"({"tools": [{"type": "function", "function": {"name": "f"}}]})");
    std::size_t end = 0;
    for (const auto& range : prompt.content) {
      if (range.begin < end || range.end < range.begin || range.end > prompt.text.size()) {
        fail("a message's part is no part of the text");
      }
      end = range.end;
    }
    static_cast<void>(format.stop_tokens());
  } catch (const Error& error) {
    if (error.code() == Errc::internal) fail("an internal error");
  }
}

}  // namespace tenon::testing
