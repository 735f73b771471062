#include "npy_header.hpp"

#include "names.hpp"
#include "npy_format.hpp"

#include <tenon/error.hpp>
#include <tenon/shape.hpp>

#include <charconv>
#include <string>

#include <fmt/format.h>

namespace tenon::io::npy {
namespace {

class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view file_name, std::uint64_t begin)
      : text_(text), file_name_(file_name), begin_(begin) {}

  Header parse() {
    expect('{');
    while (!accept('}')) {
      read_entry();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail(Errc::syntax, "text after the dictionary");
    if (!has_descr_ || !has_order_ || !has_shape_) {
      fail(Errc::bad_key, "the dictionary lacks 'descr', 'fortran_order' or 'shape'");
    }
    return header_;
  }

 private:
  void read_entry() {
    const std::string_view key = quoted_text();
    expect(':');
    if (key == "descr") {
      once(has_descr_, key);
      read_descr();
    } else if (key == "fortran_order") {
      once(has_order_, key);
      header_.is_column_major = read_bool();
    } else if (key == "shape") {
      once(has_shape_, key);
      read_shape();
    } else {
      fail(Errc::bad_key, fmt::format("unknown key {}", quote_name(key)));
    }
  }

  void read_descr() {
    skip_space();
    if (peek() == '[') fail(Errc::unsupported_dtype, "an array of records");
    const std::string_view descr = quoted_text();
    const bool has_order =
        !descr.empty() && std::string_view("<>|=").find(descr[0]) != std::string_view::npos;
    const auto dtype = find_dtype(descr.substr(has_order ? 1 : 0));
    if (!dtype) fail(Errc::unsupported_dtype, fmt::format("element type {}", quote_name(descr)));
    header_.dtype = *dtype;
    header_.is_big_endian = has_order && descr[0] == '>';
  }

  bool read_bool() {
    skip_space();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    fail(Errc::syntax, "expected True or False");
  }

  void read_shape() {
    expect('(');
    while (!accept(')')) {
      if (header_.dims.size() == static_cast<std::size_t>(max_rank)) {
        fail(Errc::bad_shape, fmt::format("more than {} dimensions", max_rank));
      }
      header_.dims.push_back(read_size());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }

  std::int64_t read_size() {
    skip_space();
    if (peek() == '-') fail(Errc::bad_shape, "a negative size");
    std::int64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) {
      fail(Errc::shape_overflow, "a size above 2^63 - 1");
    }
    if (error != std::errc()) fail(Errc::syntax, "expected a size");
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  // A word in quotes; none that we know holds an escape.
  std::string_view quoted_text() {
    skip_space();
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail(Errc::syntax, "expected a quoted word");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail(Errc::syntax, "a quoted word without an end");
    const std::string_view word = text_.substr(at_ + 1, end - at_ - 1);
    if (word.find('\\') != std::string_view::npos) fail(Errc::syntax, "an escape in a word");
    at_ = end + 1;
    return word;
  }

  void once(bool& seen, std::string_view key) {
    if (seen) fail(Errc::duplicate_name, fmt::format("key {} stands twice", quote_name(key)));
    seen = true;
  }

  char peek() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() noexcept {
    while (peek() == ' ' || peek() == '\n' || peek() == '\t' || peek() == '\r') ++at_;
  }
  bool accept(char wanted) noexcept {
    skip_space();
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) fail(Errc::syntax, fmt::format("expected '{}'", wanted));
  }
  [[noreturn]] void fail(Errc code, std::string message) const {
    throw Error(code, fmt::format("{}:{}", file_name_, begin_ + at_), std::move(message));
  }

  std::string_view text_;
  std::string_view file_name_;
  std::uint64_t begin_;
  std::size_t at_ = 0;
  Header header_;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

}  // namespace

Header parse_header(std::string_view text, std::string_view file_name, std::uint64_t begin) {
  return HeaderParser(text, file_name, begin).parse();
}

}  // namespace tenon::io::npy
