// Two classes for the tests of objects: a log, which changes, and a table, which does not.
#pragma once

#include <tenon/attributes.hpp>
#include <tenon/host_view.hpp>
#include <tenon/object.hpp>
#include <tenon/op.hpp>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::testing {

struct Log {
  std::vector<std::int64_t> entries{};
  friend bool operator==(const Log&, const Log&) = default;
};

struct Table {
  std::vector<std::int64_t> values{};
};

inline std::string bytes_of(const std::vector<std::int64_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int64_t)};
}

inline std::vector<std::int64_t> numbers_of(std::string_view bytes) {
  if (bytes.size() % sizeof(std::int64_t) != 0) {
    throw Error(Errc::corrupt, "Table", "its bytes are no numbers");
  }
  std::vector<std::int64_t> numbers(bytes.size() / sizeof(std::int64_t));
  if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

inline Shape number_shape() { return Shape({}, i64); }

inline std::int64_t number_at(const HostView& view) { return load_as_int64(i64, view.data); }

/// What is left of a log: depends on the entries and on their order.
inline std::int64_t digest(const std::vector<std::int64_t>& entries) {
  std::uint64_t sum = 17;
  for (const std::int64_t entry : entries)
    sum = (sum * 31 + static_cast<std::uint64_t>(entry)) % 1000003;
  return static_cast<std::int64_t>(sum);
}

inline std::int64_t entry_of(const std::vector<std::int64_t>& table, std::int64_t index) {
  const auto size = static_cast<std::int64_t>(table.size());
  return size == 0 ? 0 : table[static_cast<std::size_t>((index % size + size) % size)];
}

struct LogAppend {
  static constexpr std::string_view name = "log_append";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.updates_input = 0, .takes_objects = true};
  static constexpr FieldList<> fields{};
  Shape infer(std::span<const Shape> in) const {
    if (in[0].dtype() != object_type<Log>()) fail(Errc::bad_type, name, "no log");
    if (!(in[1].without_tags() == number_shape())) fail(Errc::shape_mismatch, name, "no number");
    return in[0];
  }
  void reference(std::span<const HostView> in, const HostView& out) const {
    const std::int64_t entry = number_at(in[1]);
    update_object<Log>(in[0], out).entries.push_back(entry);
    if (entry == 666) fail(Errc::out_of_range, name, "666");
  }
};

struct LogDigest {
  static constexpr std::string_view name = "log_digest";
  static constexpr int min_inputs = 1, max_inputs = 1;
  static constexpr OpTraits traits{.takes_objects = true};
  static constexpr FieldList<> fields{};
  Shape infer(std::span<const Shape> in) const {
    if (in[0].dtype() != object_type<Log>()) fail(Errc::bad_type, name, "no log");
    return number_shape();
  }
  void reference(std::span<const HostView> in, const HostView& out) const {
    *out.as<std::int64_t>() = digest(object_at<Log>(in[0]).entries);
  }
};

struct TableAt {
  static constexpr std::string_view name = "table_at";
  static constexpr int min_inputs = 2, max_inputs = 2;
  static constexpr OpTraits traits{.takes_objects = true};
  static constexpr FieldList<> fields{};
  Shape infer(std::span<const Shape> in) const {
    if (in[0].dtype() != object_type<Table>()) fail(Errc::bad_type, name, "no table");
    if (!(in[1].without_tags() == number_shape())) fail(Errc::shape_mismatch, name, "no number");
    return number_shape();
  }
  void reference(std::span<const HostView> in, const HostView& out) const {
    *out.as<std::int64_t>() = entry_of(object_at<Table>(in[0]).values, number_at(in[1]));
  }
};

inline void register_test_classes() {
  register_object<Log>("Log",
                       {.is_linear = true,
                        .save = [](const Log& log) { return bytes_of(log.entries); },
                        .load = [](std::string_view bytes) { return Log{numbers_of(bytes)}; }});
  register_object<Table>("Table",
                         {.save = [](const Table& table) { return bytes_of(table.values); },
                          .load = [](std::string_view bytes) { return Table{numbers_of(bytes)}; }});
  register_op<LogAppend>();
  register_op<LogDigest>();
  register_op<TableAt>();
}

/// A whole text of functions.
inline std::string program_text(std::string_view functions) {
  return "# tenon 1.0\nfrom __future__ import annotations\nfrom tenon.ir import *\n"
         "module(\"objects\", opset=1)\n\n" +
         std::string(functions);
}

}  // namespace tenon::testing
