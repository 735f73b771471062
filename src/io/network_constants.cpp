// The table of constants in a network's JSON, and the RAW file that it describes.
#include "names.hpp"
#include "network_json.hpp"
#include "program/constant_names.hpp"
#include "program/limits.hpp"

#include <tenon/error.hpp>
#include <tenon/io/network.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenon::io::network {

std::uint64_t read_bytes(const JsonValue& value) {
  const nlohmann::json& json = value.json();
  const bool fits = json.is_number_unsigned() &&
                    json.get<std::uint64_t>() <=
                        static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!fits) {
    value.fail(Errc::bad_offset,
               fmt::format("expected a number of bytes, found {:.40}", json.dump()));
  }
  return json.get<std::uint64_t>();
}

namespace {

struct Constant {
  std::string name;
  Shape shape;
  std::uint64_t offset;
  std::uint64_t size_bytes;
  std::uint64_t xxh3;
  bool folded;
};

std::uint64_t read_checksum(const JsonValue& value) {
  const std::string& text = value.text();
  std::uint64_t number = 0;
  const bool is_hex = text.size() == 16 && std::ranges::all_of(text, [&](char c) {
                        const bool digit = c >= '0' && c <= '9';
                        if (!digit && (c < 'a' || c > 'f')) return false;
                        number =
                            number << 4 | static_cast<unsigned>(digit ? c - '0' : c - 'a' + 10);
                        return true;
                      });
  if (!is_hex) value.fail(Errc::syntax, "expected 16 hexadecimal digits");
  return number;
}

Constant read_constant(const JsonValue& json, std::uint64_t raw_bytes, WordBudget& words) {
  json.check_keys({"name", "type", "offset", "size_bytes", "xxh3", "folded"});
  constexpr std::uint64_t max_name_bytes = 65535;
  Constant constant;
  constant.name = json["name"].text();
  json.locate([&] { check_name(constant.name, "constant", max_name_bytes, ""); });
  constant.shape = read_type(json["type"], words);
  constant.offset = read_bytes(json["offset"]);
  constant.size_bytes = read_bytes(json["size_bytes"]);
  constant.xxh3 = read_checksum(json["xxh3"]);
  constant.folded = json.has("folded") && json["folded"].boolean();

  if (!constant.shape.is_static()) {
    json.fail(Errc::bad_shape, fmt::format("{} has open sizes", to_string(constant.shape)));
  }
  if (static_cast<std::uint64_t>(constant.shape.bytes()) != constant.size_bytes) {
    json.fail(Errc::bad_shape,
              fmt::format("{} {} needs {} bytes, the table says {}", quote_name(constant.name),
                          to_string(constant.shape), constant.shape.bytes(), constant.size_bytes));
  }
  if (constant.offset % raw_alignment != 0) {
    json.fail(Errc::bad_alignment,
              fmt::format("offset {} is no multiple of {}", constant.offset, raw_alignment));
  }
  if (constant.offset > raw_bytes || constant.size_bytes > raw_bytes - constant.offset) {
    json.fail(Errc::bad_offset, fmt::format("{} bytes at {} of a RAW file of {}",
                                            constant.size_bytes, constant.offset, raw_bytes));
  }
  return constant;
}

class RawReader {
 public:
  RawReader(std::shared_ptr<const InputFile> file, bool verify)
      : file_(std::move(file)), verify_(verify) {}

  std::uint64_t size() const { return file_->size(); }

  /// At most a few bytes between constants.
  void check_zeros(std::uint64_t begin, std::uint64_t end) const {
    std::vector<std::byte> gap(end - begin);
    file_->read(begin, gap);
    if (std::ranges::all_of(gap, [](std::byte b) { return b == std::byte{0}; })) return;
    throw Error(Errc::corrupt, fmt::format("{}:{}", file_->name(), begin),
                "a byte between constants is not zero");
  }

  HostBuffer read(const Constant& constant) const {
    HostBuffer array;
    if (file_->is_mapped() && constant.size_bytes > 0) {
      array = HostBuffer::mapped(file_, constant.offset, constant.shape);
    } else {
      array = HostBuffer::uninitialized(constant.shape);
      file_->read(constant.offset,
                  {array.view().data, static_cast<std::size_t>(constant.size_bytes)});
    }
    if (verify_ && XXH3_64bits(array.bytes(), constant.size_bytes) != constant.xxh3) {
      throw Error(
          Errc::corrupt, fmt::format("{}:{}", file_->name(), constant.offset),
          fmt::format("the checksum of constant {} does not match", quote_name(constant.name)));
    }
    return array;
  }

 private:
  std::shared_ptr<const InputFile> file_;
  bool verify_;
};

/// Checks that constants are adjacent: no overlaps, and no bytes in between except padding zeros.
void check_places(const JsonValue& list, const std::vector<Constant>& constants,
                  const RawReader& raw) {
  std::vector<const Constant*> by_offset;
  for (const Constant& constant : constants) {
    if (constant.size_bytes > 0) by_offset.push_back(&constant);
  }
  std::ranges::sort(by_offset, {}, &Constant::offset);
  std::uint64_t end = 0;
  const auto check_hole = [&](std::uint64_t begin) {
    if (begin - end < raw_alignment) return raw.check_zeros(end, begin);
    list.fail(Errc::hole,
              fmt::format("{} bytes of RAW from {} on are no constant's", begin - end, end));
  };
  for (const Constant* constant : by_offset) {
    if (constant->offset < end) {
      list.fail(Errc::overlap, fmt::format("{} begins at {}, inside the constant before it",
                                           quote_name(constant->name), constant->offset));
    }
    check_hole(constant->offset);
    end = constant->offset + constant->size_bytes;
  }
  check_hole(raw.size());
}

}  // namespace

std::optional<std::string> stated_type_conflict(const Network& net) {
  std::optional<std::string> conflict;
  for_each_constant(net.program, [&](const ConstantPlace& use, const std::string& name) {
    const Function& function = net.program.functions[use.function];
    const Value& value = function.values[function.body[use.instruction].result];
    if (conflict || !value.shape || !value.shape->is_static()) return;
    const auto weight = net.weights.find(name);
    const auto folded = net.program.folded.find(name);
    const HostBuffer* data = folded != net.program.folded.end() ? &folded->second
                             : weight != net.weights.end()      ? &weight->second
                                                                : nullptr;
    if (data == nullptr || data->shape() == *value.shape) return;
    conflict = fmt::format("node '{}' of {} takes constant {} for {}, the table has {}", value.name,
                           function.name, quote_name(name), to_string(*value.shape),
                           to_string(data->shape()));
  });
  return conflict;
}

void read_constants(const JsonValue& list, const std::shared_ptr<const InputFile>& file,
                    bool verify, Network& net, WordBudget& words) {
  const RawReader raw(file, verify);
  if (list.size() > static_cast<std::size_t>(program_limits::constants)) {
    list.fail(Errc::limit_exceeded,
              fmt::format("{} constants, at most {}", list.size(), program_limits::constants));
  }
  std::vector<Constant> constants;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonValue item = list[i];
    constants.push_back(read_constant(item, raw.size(), words));
    auto& to = constants.back().folded ? net.program.folded : net.weights;
    const std::string& name = constants.back().name;
    const bool known = net.program.folded.contains(name) || net.weights.contains(name);
    if (known) item.fail(Errc::duplicate_name, fmt::format("two constants {}", quote_name(name)));
    to.emplace(name, HostBuffer());
  }
  check_places(list, constants, raw);
  for (const Constant& constant : constants) {
    (constant.folded ? net.program.folded : net.weights).at(constant.name) = raw.read(constant);
  }
  if (const auto conflict = stated_type_conflict(net)) list.fail(Errc::bad_shape, *conflict);
}

}  // namespace tenon::io::network
