#pragma once

#include <tenon/host_buffer.hpp>
#include <tenon/op.hpp>
#include <tenon/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// Number of a value within its function: parameters first, then results in order.
using ValueId = std::uint32_t;

/// Kinds of values of a program.
enum class ValueKind : std::uint8_t {
  tensor,  ///< an array
  tuple,   ///< several values, made by pack or repeat and taken apart by item
  scope,   ///< a prefix of constant names
};

struct Value {
  std::string name;  ///< unique in its function; [A-Za-z_][A-Za-z0-9_]*
  ValueKind kind = ValueKind::tensor;
  /// Tensors only: the type asserted in the text, or known from recording. Sizes may be symbolic.
  std::optional<Shape> shape;
};

/// A place in program text or in the user's source, for messages.
struct SourceLine {
  std::string file;  ///< empty: unknown
  int line = 0;
  int column = 0;
};

/// One statement: `result = op(operands, attributes)`. Each has exactly one result.
struct Instruction {
  enum class Kind : std::uint8_t {
    op,        ///< `op` applied to operands
    constant,  ///< const("name") or, with a scope operand, const(s, "name")
    scope,     ///< scope("prefix") or scope(s, "prefix")
    pack,      ///< pack(a, b, ...) -> tuple
    item,      ///< item(t, index)
    repeat,    ///< repeat(f, count, carry tuple, scope, *extra, first=first, condition=k) -> tuple
    call,      ///< f(operands): inlined before anything runs
  };

  Kind kind = Kind::op;
  OpInstance op;                ///< kind op
  std::string text;             ///< constant: its name; scope: its prefix
  std::string function;         ///< repeat and call: the callee
  std::int64_t index = 0;       ///< item: index into the tuple
  std::int64_t count = 0;       ///< repeat: number of iterations
  std::int64_t first = 0;       ///< repeat: the first index
  std::int64_t condition = -1;  ///< repeat: the item of the carry, a bool[], that ends it; -1: none
  std::vector<ValueId> operands;  ///< repeat: carry, scope, extras
  ValueId result = 0;
  SourceLine line;
};

/// `repeat(f, n, carry, s, *extra)` calls f(*carry, i, s.i, *extra) for i = first .. first + n - 1:
/// f's parameters are the carry's items, an i64[] index, a scope and the extras; its results are
/// the next carry. With condition=k no further call is made once item k of the carry is false, before
/// the first one too; n is then the most that are made.
struct Function {
  std::string name;
  std::vector<Value> values;
  std::uint32_t parameter_count = 0;  ///< values[0 .. parameter_count) are the parameters
  std::vector<Instruction> body;
  std::vector<ValueId> results;

  ValueId add_value(Value value) {
    values.push_back(std::move(value));
    return static_cast<ValueId>(values.size() - 1);
  }
};

/// Functions of SSA instructions. print() and parse() convert to and from text without loss.
struct Program {
  std::string name = "model";
  int opset = 1;
  std::string weights_file;    ///< companion file of the constants, as in the text; may be empty
  std::string weights_sha256;  ///< hex digest of that file; may be empty
  std::vector<Function> functions;
  std::string entry = "forward";
  /// Constants that folding made. They take precedence over those of the companion file.
  std::map<std::string, HostBuffer> folded;

  const Function* find(std::string_view function) const noexcept;
  Function* find(std::string_view function) noexcept;
  /// The entry function; Errc::bad_reference when there is none.
  const Function& main() const;
};

/// Checks everything that needs no data: names, arity, attribute types, SSA order, recursion,
/// tuples, scopes, linear values (an updated tensor is not used again) and, where types are known,
/// `infer`. Sets types that follow from the parameters' types. Throws the first error;
/// `check_program` returns all of them.
void verify(Program& program);

struct Diagnostic {
  Errc code;
  SourceLine line;
  std::string message;
};
std::vector<Diagnostic> check_program(Program& program);

/// The canonical text of a program, and the program of a text. `parse` throws the first error, at
/// "file:line:column" and with a message that ends in the source line and a caret; `parse_all`
/// returns all of them. Grammar: docs/text-ir.md.
std::string print(const Program& program);
Program parse(std::string_view text, std::string_view file = "program");
struct ParseResult {
  Program program;  ///< empty when there are errors
  std::vector<Diagnostic> errors;
};
ParseResult parse_all(std::string_view text, std::string_view file = "program");

inline constexpr std::size_t max_unrolled = std::size_t{1} << 20;  ///< instructions

/// The same program without repeat and call: one function of plain ops. Values of iteration `i` of
/// `repeat(f, ...)` are named "f_<i>_<name>", those of a call "f_<name>", with a number appended
/// where that name is taken. Loops with a condition stay as they are, with the functions that they
/// call. Errc::limit_exceeded beyond `limit` instructions.
Program unroll(const Program& program, std::size_t limit = max_unrolled);

/// The full names of the constants that the entry function reads, with calls and loops expanded
/// ("blk.3.up.weight"), each once, in the order of their first use. Errors: those of verify().
std::vector<std::string> constant_names(const Program& program);

/// Whether two programs are equal in everything that the text has: source lines, axis tags and the
/// values of `folded` are ignored.
bool same_program(const Program& a, const Program& b);

}  // namespace tenon
