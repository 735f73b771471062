#include "safetensors_header.hpp"

#include "names.hpp"
#include "parsed_file.hpp"
#include "safetensors_format.hpp"

#include <tenon/error.hpp>

#include <array>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tenon::io::safetensors {
namespace {

constexpr std::uint64_t header_begin = 8;

// An iterator over the JSON that records the parser's position, which its events do not have.
class Tracker {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Tracker(const char* at, const char** latest) : at_(at), latest_(latest) {}
  reference operator*() const { return *at_; }
  Tracker& operator++() {
    *latest_ = ++at_;
    return *this;
  }
  bool operator==(const Tracker& other) const { return at_ == other.at_; }
  bool operator!=(const Tracker& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** latest_;
};

// What a key inside a tensor's description says.
enum class Field { none, dtype, shape, data_offsets, unknown };

// Builds the header from the events of the JSON parser, so that a header of 100 MB never becomes a
// tree. States follow the nesting: the object, then one description, then one list in it.
class HeaderBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderBuilder(std::string_view file_name, const Limits& limits, std::string_view json,
                const char* const* latest)
      : file_name_(file_name), limits_(limits), json_(json), latest_(latest) {}

  Header take() {
    check_distinct();
    return std::move(header_);
  }

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a bool"); }
  bool binary(binary_t&) override { return value("bytes"); }

  bool number_integer(number_integer_t number) override {
    if (!in_list()) return value("a number");
    // Only numbers with a minus sign come here: zero is "-0".
    if (number == 0) fail(Errc::syntax, place() + " holds -0, expected a plain integer");
    fail(list_ == Field::shape ? Errc::bad_shape : Errc::bad_offset,
         fmt::format("{} holds {}", place(), number));
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (!in_list()) return value("a number");
    if (list_ == Field::shape) {
      add_dim(number);
    } else {
      add_offset(number);
    }
    return true;
  }

  bool number_float(number_float_t, const string_t& digits) override {
    if (!in_list()) return value("a number");
    if (digits.find_first_not_of("-0123456789") != std::string::npos) {
      fail(Errc::syntax, fmt::format("{} holds {}, expected a plain integer", place(), digits));
    }
    const Errc too_large = digits[0] == '-' ? Errc::bad_shape : Errc::shape_overflow;
    fail(list_ == Field::shape ? too_large : Errc::bad_offset,
         fmt::format("{} holds {}", place(), digits.substr(0, 40)));
  }

  bool string(string_t& text) override {
    if (depth_ == 2 && in_metadata_) {
      header_.metadata.emplace_back(std::move(key_), std::move(text));
      return true;
    }
    if (depth_ == 2 && field_ == Field::dtype) {
      set_dtype(text);
      return true;
    }
    return value("a string");
  }

  bool start_object(std::size_t) override {
    if (depth_ == 1 && !skipping()) {
      in_metadata_ = key_ == metadata_key;
      begin_tensor();
    } else if (depth_ > 0) {
      value("an object", true);
    }
    return descend();
  }

  bool end_object() override {
    --depth_;
    if (depth_ == 1 && !skipping()) {
      if (!in_metadata_) end_tensor();
      in_metadata_ = false;
    }
    if (depth_ == 0) check_padding();
    return ascend();
  }

  bool start_array(std::size_t) override {
    const bool is_list = field_ == Field::shape || field_ == Field::data_offsets;
    if (depth_ == 2 && !in_metadata_ && !skipping() && is_list) {
      list_ = field_;
    } else {
      value("an array", true);
    }
    return descend();
  }

  bool end_array() override {
    --depth_;
    if (depth_ == 2 && list_ != Field::none) end_list();
    return ascend();
  }

  bool key(string_t& text) override {
    if (skipping()) return true;
    if (depth_ == 1) {
      check_name(text, "tensor name", limits_.name_bytes, where());
      key_ = std::move(text);
      field_ = Field::none;
    } else if (in_metadata_) {
      if (header_.metadata.size() >= limits_.metadata_keys) {
        fail(Errc::limit_exceeded,
             fmt::format("more than {} metadata keys", limits_.metadata_keys));
      }
      check_name(text, "metadata key", limits_.name_bytes, where());
      key_ = std::move(text);
    } else {
      set_field(text);
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string_view text = error.what();
    // The library's own prefix and position count from the header's begin; ours stand in `where`.
    if (const auto colon = text.find(": "); colon != std::string_view::npos) {
      text.remove_prefix(colon + 2);
    }
    constexpr std::size_t shown = 200;  // it quotes the last token, which may be long
    fail(Errc::syntax, std::string(text.substr(0, shown)));
  }

 private:
  bool in_list() const noexcept { return depth_ == 3 && list_ != Field::none && skip_from_ == 0; }
  bool skipping() const noexcept { return skip_from_ != 0; }

  bool descend() {
    if (++depth_ > limits_.depth) {
      fail(Errc::depth_limit, fmt::format("nested deeper than {}", limits_.depth));
    }
    return true;
  }
  bool ascend() {
    if (skip_from_ != 0 && depth_ < skip_from_) skip_from_ = 0;
    return true;
  }

  // Spaces alone may follow the object, to fill the header up (the format's own rule). The parser
  // would take a NUL for the end of the text, and leave what follows unseen.
  void check_padding() const {
    const std::string_view rest = json_.substr(static_cast<std::size_t>(*latest_ - json_.data()));
    const std::size_t other = rest.find_first_not_of(' ');
    if (other == std::string_view::npos) return;
    throw Error(
        Errc::syntax, fmt::format("{}:{}", file_name_, position() + other),
        fmt::format("the JSON ends at byte {}, the header at {}: byte 0x{:02x} between them "
                    "is no space; a header that is too long reaches into the data",
                    position(), header_begin + json_.size(),
                    static_cast<unsigned char>(rest[other])));
  }

  // A value where the format has no place for one of its type, or one that is skipped with all that
  // it holds: that of an unknown field.
  bool value(std::string_view found, bool is_container = false) {
    if (skipping()) return true;
    if (depth_ == 2 && !in_metadata_ && field_ == Field::unknown) {
      if (is_container) skip_from_ = depth_ + 1;
      return true;
    }
    if (depth_ == 1) {
      fail(Errc::bad_type, fmt::format("{} is {}, expected an object", quote_name(key_), found));
    }
    if (in_metadata_) {
      fail(Errc::bad_type, fmt::format("{} of '{}' is {}, expected a string", quote_name(key_),
                                       metadata_key, found));
    }
    if (field_ == Field::dtype) {
      fail(Errc::unsupported_dtype,
           fmt::format("tensor {}: dtype is {}, expected a string", quote_name(key_), found));
    }
    fail(Errc::bad_type, fmt::format("{} is or holds {}", place(), found));
  }

  void begin_tensor() {
    if (in_metadata_) {
      if (has_metadata_) fail(Errc::duplicate_name, fmt::format("'{}' stands twice", metadata_key));
      has_metadata_ = true;
      return;
    }
    if (header_.tensors.size() >= limits_.tensors) {
      fail(Errc::limit_exceeded, fmt::format("more than {} tensors", limits_.tensors));
    }
    dtype_.reset();
    has_shape_ = has_offsets_ = has_dtype_ = false;
    rank_ = offset_count_ = 0;
  }

  void set_field(const std::string& text) {
    const auto once = [&](bool& seen, Field field) {
      if (seen) {
        fail(Errc::duplicate_name, fmt::format("tensor {} has two '{}'", quote_name(key_), text));
      }
      seen = true;
      field_ = field;
    };
    if (text == "dtype") {
      once(has_dtype_, Field::dtype);
    } else if (text == "shape") {
      once(has_shape_, Field::shape);
    } else if (text == "data_offsets") {
      once(has_offsets_, Field::data_offsets);
    } else {
      field_ = Field::unknown;
    }
  }

  void set_dtype(const std::string& word) {
    dtype_ = find_dtype(word);
    if (!dtype_) {
      fail(Errc::unsupported_dtype,
           fmt::format("tensor {} has dtype {}", quote_name(key_), quote_name(word)));
    }
  }

  void add_dim(std::uint64_t size) {
    if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail(Errc::shape_overflow, fmt::format("{} holds {}", place(), size));
    }
    if (rank_ == dims_.size()) {
      fail(Errc::bad_shape, fmt::format("{} has more than {} sizes", place(), max_rank));
    }
    dims_[rank_++] = static_cast<std::int64_t>(size);
  }

  void add_offset(std::uint64_t offset) {
    if (offset_count_ == offsets_.size())
      fail(Errc::bad_offset, place() + " has more than 2 numbers");
    offsets_[offset_count_++] = offset;
  }

  void end_list() {
    if (list_ == Field::data_offsets && offset_count_ != offsets_.size()) {
      fail(Errc::bad_offset, fmt::format("{} has {} numbers, expected 2", place(), offset_count_));
    }
    list_ = Field::none;
  }

  void end_tensor() {
    if (!has_dtype_) {
      fail(Errc::unsupported_dtype, fmt::format("tensor {} has no 'dtype'", quote_name(key_)));
    }
    if (!has_shape_ || !has_offsets_) {
      fail(Errc::bad_key, fmt::format("tensor {} has no '{}'", quote_name(key_),
                                      has_shape_ ? "data_offsets" : "shape"));
    }
    if (offsets_[0] > offsets_[1]) {
      fail(Errc::bad_offset, fmt::format("tensor {} begins at {} and ends at {}", quote_name(key_),
                                         offsets_[0], offsets_[1]));
    }
    Declaration& tensor = header_.tensors.emplace_back();
    tensor.shape = file_shape({dims_.data(), rank_}, *dtype_, where(), key_);
    tensor.begin = offsets_[0];
    tensor.end = offsets_[1];
    tensor.position = position();
    tensor.name = std::move(key_);
  }

  void check_distinct() const {
    std::vector<std::string_view> names;
    names.reserve(header_.tensors.size());
    for (const Declaration& tensor : header_.tensors) names.push_back(tensor.name);
    if (const auto pair = find_duplicate(names, sorted_positions(names))) {
      const auto at = [&](std::uint32_t i) { return header_.tensors[i].position; };
      throw Error(Errc::duplicate_name, fmt::format("{}:{}", file_name_, at(pair->second)),
                  fmt::format("tensor {} is described before byte {} already",
                              quote_name(names[pair->first]), at(pair->first)));
    }
    names.clear();
    for (const auto& [key, text] : header_.metadata) names.push_back(key);
    if (const auto pair = find_duplicate(names, sorted_positions(names))) {
      throw Error(Errc::duplicate_name, fmt::format("{}:{}", file_name_, header_begin),
                  fmt::format("'{}' holds {} twice", metadata_key, quote_name(names[pair->first])));
    }
  }

  std::string place() const {
    const Field field = list_ != Field::none ? list_ : field_;
    return fmt::format("tensor {}: '{}'", quote_name(key_),
                       field == Field::shape ? "shape" : "data_offsets");
  }
  std::uint64_t position() const {
    return header_begin + static_cast<std::uint64_t>(*latest_ - json_.data());
  }
  std::string where() const { return fmt::format("{}:{}", file_name_, position()); }
  [[noreturn]] void fail(Errc code, std::string message) const {
    throw Error(code, where(), std::move(message));
  }

  std::string_view file_name_;
  const Limits& limits_;
  std::string_view json_;
  const char* const* latest_;
  Header header_;

  int depth_ = 0;
  int skip_from_ = 0;  // depth of the outermost skipped value; 0: none
  std::string key_;    // the tensor or metadata key at hand
  bool in_metadata_ = false;
  bool has_metadata_ = false;

  Field field_ = Field::none;  // of the description at hand
  Field list_ = Field::none;   // of the list at hand
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  std::optional<DType> dtype_;
  std::array<std::int64_t, max_rank> dims_{};
  std::size_t rank_ = 0;
  std::array<std::uint64_t, 2> offsets_{};
  std::size_t offset_count_ = 0;
};

}  // namespace

Header parse_header(std::string_view json, std::string_view file_name, const Limits& limits) {
  if (!json.starts_with('{')) {
    const bool has_mark = json.starts_with("\xEF\xBB\xBF");
    throw Error(Errc::syntax, fmt::format("{}:{}", file_name, header_begin),
                fmt::format("the header begins with {}, expected '{{'",
                            has_mark ? "a byte order mark" : quote_name(json.substr(0, 1))));
  }
  const char* latest = json.data();
  HeaderBuilder builder(file_name, limits, json, &latest);
  nlohmann::json::sax_parse(Tracker(json.data(), &latest),
                            Tracker(json.data() + json.size(), &latest), &builder);
  return builder.take();
}

}  // namespace tenon::io::safetensors
