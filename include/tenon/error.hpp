#pragma once

#include <exception>
#include <source_location>
#include <string>
#include <string_view>

namespace tenon {

/// Error codes. They are part of the API; the text of a message is not.
enum class Errc {
#define TENON_ERRC(id, spelling, number, kind) id,
#include <tenon/error_codes.def>
#undef TENON_ERRC
};

/// Classes of errors, by what has to change.
enum class ErrorClass {
  input,        ///< a file or text is malformed
  argument,     ///< a call was wrong
  unsupported,  ///< this build, machine or device cannot do it
  machine,      ///< memory, storage, plugins or devices failed
  ended_early,  ///< a deadline passed, or the work was cancelled
  internal,     ///< our own invariant broke
};

/// The code's name in messages and JSON, e.g. "BadMagic".
std::string_view spelling(Errc code) noexcept;

/// The code's number in device runtimes, e.g. 11003.
int number(Errc code) noexcept;

ErrorClass error_class(Errc code) noexcept;

/// A program's exit status for an error: argument 2, input 3, unsupported 4, machine 5,
/// ended_early 6, internal 1.
int exit_status(Errc code) noexcept;

/// The only exception type of the library. Its texts are escaped by printable(), line breaks kept.
///
/// `where` is the location of the fault: "model.gguf:1024" (file and byte offset),
/// "net.tenon:17:40" (line and column), "softmax" (an op or a function), or the user's
/// "main.cpp:31".
class Error : public std::exception {
 public:
  Error(Errc code, std::string where, std::string message);

  /// With a line of the user's source as the location.
  Error(Errc code, const std::source_location& where, std::string message);

  Errc code() const noexcept { return code_; }
  const std::string& where() const noexcept { return where_; }
  const std::string& message() const noexcept { return message_; }

  /// "BadMagic: model.gguf:0: found FUGG, expected GGUF".
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  Errc code_;
  std::string where_;
  std::string message_;
  std::string what_;
};

/// "main.cpp:31": the file's own name and the line, as messages show a source location.
std::string to_string(const std::source_location& where);

}  // namespace tenon
