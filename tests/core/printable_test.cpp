#include <tenon/error.hpp>
#include <tenon/log.hpp>
#include <tenon/printable.hpp>

#include <string>
#include <string_view>
#include <utility>

#include <catch2/catch.hpp>

namespace tenon {

TEST_CASE("printable: text stays as it is") {
  for (const std::string_view text :
       {"", "plain ~ text", "a\\b", "Grüße, 世界, \xF0\x9F\x98\x80", "\xC2\xA0", "e\xCC\x81"}) {
    CHECK(printable(text) == text);
  }
}

TEST_CASE("printable: what a terminal takes for a command is spelled out") {
  CHECK(printable("\x1b[2J") == "\\x1b[2J");
  CHECK(printable(std::string_view("a\0b\x7f", 4)) == "a\\x00b\\x7f");
  CHECK(printable("\xC2\x9B"
                  "31m") == "\\u{9b}31m");  // CSI as one character
  CHECK(printable("\xC2\x80\xC2\x9F") == "\\u{80}\\u{9f}");
  CHECK(printable("\xE2\x80\xAE"
                  "gnp") == "\\u{202e}gnp");  // right-to-left override
  CHECK(printable("\xE2\x81\xA6\xE2\x80\x8F\xD8\x9C") == "\\u{2066}\\u{200f}\\u{61c}");
  CHECK(printable("\xE2\x80\xA8\xE2\x80\xA9") == "\\u{2028}\\u{2029}");
}

TEST_CASE("printable: bytes that are not UTF-8") {
  CHECK(printable("\x9b") == "\\x9b");  // CSI of eight-bit terminals
  CHECK(printable("a\xffz") == "a\\xffz");
  CHECK(printable("\xE2\x82") == "\\xe2\\x82");
  CHECK(printable("\xC0\xAF\xED\xA0\x80") == "\\xc0\\xaf\\xed\\xa0\\x80");
}

TEST_CASE("printable: line breaks are kept where the caller says so") {
  CHECK(printable("a\nb\tc\r") == "a\\x0ab\\x09c\\x0d");
  CHECK(printable("a\nb\tc\r", LineBreaks::keep) == "a\nb\tc\\x0d");
}

TEST_CASE("printable: every code point, and twice is once") {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  for (unsigned c = 0x80; c < 0x800; ++c) {
    text += static_cast<char>(0xC0 | (c >> 6));
    text += static_cast<char>(0x80 | (c & 0x3F));
  }
  const std::string once = printable(text);
  CHECK(printable(once) == once);
  for (const char c : once) CHECK((static_cast<unsigned char>(c) >= ' ' && c != '\x7f'));
}

TEST_CASE("printable: errors and messages show nothing else") {
  const Error error(Errc::bad_key, "m\x1b.gguf:7", "no key '\xC2\x9B'\nfound: \x07");
  CHECK(error.where() == "m\\x1b.gguf:7");
  CHECK(error.message() == "no key '\\u{9b}'\nfound: \\x07");
  CHECK(std::string(error.what()) == "BadKey: " + error.where() + ": " + error.message());

  std::string heard;
  LogSink before = set_log_sink([&](LogLevel, std::string_view text) { heard = text; });
  log(LogLevel::warning, "key \x1b]0;title\x07 is unknown");
  set_log_sink(std::move(before));
  CHECK(heard == "key \\x1b]0;title\\x07 is unknown");
}

}  // namespace tenon
