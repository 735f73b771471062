// The JSON of a network: docs/network-json.md. Reader and writer share the words.
#pragma once

#include "base/json_writer.hpp"
#include "json_reader.hpp"

#include <tenon/io/network.hpp>
#include <tenon/program.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::io::network {

inline constexpr std::string_view format_name = "tenon-network";
inline constexpr std::int64_t version = 1;
inline constexpr std::uint64_t max_json_bytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t raw_alignment = 64;  ///< of every constant's offset

void write_type(JsonWriter& json, const Shape& shape);
void write_attribute(JsonWriter& json, const AttributeValue& value);
/// One function, one line of text per parameter and node; `indent` before each line.
std::string function_text(const Function& function);

/// Maximal number of words of a document that are added to the process-wide table of names.
class WordBudget {
 public:
  /// Errc::limit_exceeded at `place`.
  Name intern(const JsonValue& place, const std::string& text);

 private:
  std::set<std::string, std::less<>> words_;
};

Shape read_type(const JsonValue& type, WordBudget& words);
/// Sets the attributes of `node` that are given; errors name the attribute.
void read_attributes(const JsonValue& attributes, std::string_view node, OpInstance& op,
                     WordBudget& words);

/// A function, its nodes in an order in which each follows what it reads; `order[i]` is where
/// instruction i stands in the document.
struct ReadFunction {
  Function function;
  std::vector<std::size_t> order;
};
ReadFunction read_function(const JsonValue& function, WordBudget& words);

/// A number of bytes: anything but an integer from 0 to 2^63 - 1 is Errc::bad_offset.
std::uint64_t read_bytes(const JsonValue& value);
/// The table of constants, and the constants as pages of RAW; `verify`: with the checksums that the
/// table states. What the graph in `net` says about them must agree.
void read_constants(const JsonValue& list, const std::shared_ptr<const InputFile>& file,
                    bool verify, Network& net, WordBudget& words);

/// The location where the graph declares a constant's type that is not that of its bytes; nothing
/// where all agree. The program must have passed its checks.
std::optional<std::string> stated_type_conflict(const Network& net);

}  // namespace tenon::io::network
