#include <tenon/error.hpp>
#include <tenon/held.hpp>
#include <tenon/printable.hpp>

#include <cstdint>
#include <iterator>

namespace tenon {
namespace {

struct CodeFacts {
  std::string_view spelling;
  int number;
  ErrorClass kind;
};

constexpr CodeFacts code_facts[] = {
#define TENON_ERRC(id, spelling, number, kind) {spelling, number, ErrorClass::kind},
#include <tenon/error_codes.def>
#undef TENON_ERRC
};

/// Of a number that is no code: those of `internal`.
const CodeFacts& facts(Errc code) noexcept {
  const auto index = static_cast<std::size_t>(code);
  constexpr auto internal = static_cast<std::size_t>(Errc::internal);
  return code_facts[index < std::size(code_facts) ? index : internal];
}

}  // namespace

std::string_view spelling(Errc code) noexcept { return facts(code).spelling; }
int number(Errc code) noexcept { return facts(code).number; }
ErrorClass error_class(Errc code) noexcept { return facts(code).kind; }

int exit_status(Errc code) noexcept {
  switch (error_class(code)) {
    case ErrorClass::argument:
      return 2;
    case ErrorClass::input:
      return 3;
    case ErrorClass::unsupported:
      return 4;
    case ErrorClass::machine:
      return 5;
    case ErrorClass::ended_early:
      return 6;
    case ErrorClass::internal:
      return 1;
  }
  return 1;
}

Error::Error(Errc code, std::string where, std::string message)
    : code_(code),
      // Messages may contain text of files and devices: escaped here, so that callers can print
      // them.
      where_(printable(where, LineBreaks::keep)),
      message_(printable(message, LineBreaks::keep)) {
  what_ = std::string(spelling(code_)) + ": ";
  // A URL of a device may end with a colon.
  if (!where_.empty()) what_ += where_ + (where_.ends_with(':') ? " " : ": ");
  what_ += message_;
}

Error::Error(Errc code, const std::source_location& where, std::string message)
    : Error(code, to_string(where), std::move(message)) {}

std::string to_string(const std::source_location& where) {
  std::string_view file = where.file_name();
  if (const auto slash = file.find_last_of('/'); slash != std::string_view::npos) {
    file.remove_prefix(slash + 1);
  }
  return std::string(file) + ":" + std::to_string(where.line());
}

void detail::throw_moved_from(std::string_view class_name) {
  throw Error(Errc::call_order, std::string(class_name),
              "the object was moved from and holds nothing");
}

}  // namespace tenon
