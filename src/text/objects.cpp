#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/text/objects.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace tenon::text {
namespace {

void check(std::string_view op, std::span<const Shape> in, DType dtype, std::int64_t capacity) {
  if (in[0].dtype() != object_type<TokenizerObject>()) {  // C1
    fail(Errc::bad_type, op, fmt::format("{} is no Tokenizer", to_string(in[0])));
  }
  if (in[1].rank() != 1 || in[1].dtype() != dtype) {  // C2
    fail(Errc::shape_mismatch, op,
         fmt::format("reads {}[n], not {}", tenon::name(dtype), to_string(in[1])));
  }
  if (capacity < 0) fail(Errc::bad_attribute, op, fmt::format("a capacity of {}", capacity));  // C3
}

const Tokenizer& tokenizer_of(const HostView& operand) {
  return object_at<TokenizerObject>(operand).tokenizer;
}

[[noreturn]] void throw_full(std::string_view op, std::size_t count, std::string_view what,
                             std::int64_t capacity) {
  fail(Errc::out_of_range, op, fmt::format("{} {}, a capacity of {}", count, what, capacity));
}

}  // namespace

TokenizerObject TokenizerObject::from_json_text(std::string_view json) {
  TokenizerObject made(Tokenizer::from_json_text(json));
  made.json = json;
  return made;
}

Shape Tokenize::infer(std::span<const Shape> in) const {
  check(name, in, u8, capacity);
  return Shape({capacity}, i32);
}

void Tokenize::reference(std::span<const HostView> in, const HostView& out) const {
  std::string text(static_cast<std::size_t>(in[1].shape[0]), '\0');
  for (std::size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<char>(in[1].data[static_cast<std::int64_t>(i) * in[1].strides[0]]);
  }
  const std::vector<std::int32_t> ids = tokenizer_of(in[0]).encode(
      text, {.add_special = add_special, .parse_special = parse_special});
  if (std::cmp_greater(ids.size(), capacity)) throw_full(name, ids.size(), "tokens", capacity);
  auto* const to = out.as<std::int32_t>();
  std::ranges::copy(ids, to);
  std::fill(to + ids.size(), to + capacity, static_cast<std::int32_t>(fill));
}

Shape Detokenize::infer(std::span<const Shape> in) const {
  check(name, in, i32, capacity);
  return Shape({capacity}, u8);
}

void Detokenize::reference(std::span<const HostView> in, const HostView& out) const {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < in[1].shape[0]; ++i) {
    std::int32_t id = 0;
    std::memcpy(&id, in[1].data + i * in[1].strides[0], sizeof id);
    if (id >= 0) ids.push_back(id);
  }
  const std::string text = tokenizer_of(in[0]).decode(ids, {.skip_special = skip_special});
  if (std::cmp_greater(text.size(), capacity)) throw_full(name, text.size(), "bytes", capacity);
  auto* const to = out.as<char>();
  std::ranges::copy(text, to);
  std::fill(to + text.size(), to + capacity, '\0');
}

Tensor tokenize(const Tensor& tokenizer, const Tensor& text, const Tokenize& attributes,
                const std::source_location& where) {
  return record(attributes, {tokenizer, text}, where);
}

Tensor detokenize(const Tensor& tokenizer, const Tensor& ids, const Detokenize& attributes,
                  const std::source_location& where) {
  return record(attributes, {tokenizer, ids}, where);
}

Buffer text_buffer(std::string_view text) {
  HostBuffer bytes = HostBuffer::uninitialized(Shape({static_cast<std::int64_t>(text.size())}, u8));
  std::ranges::copy(text, reinterpret_cast<char*>(bytes.mutable_values<std::uint8_t>().data()));
  return bytes.to_device(cpu_device());
}

std::string text_of(const Buffer& buffer) {
  if (buffer.shape().rank() != 1 || buffer.shape().dtype() != u8) {
    throw Error(Errc::bad_type, "text_of", fmt::format("{} is no text", to_string(buffer.shape())));
  }
  const HostBuffer bytes = buffer.to_host();
  const std::span<const std::uint8_t> values = bytes.values<std::uint8_t>();
  std::string text(values.begin(), values.end());
  text.erase(text.find_last_not_of('\0') + 1);
  return text;
}

void register_objects() {
  register_object<TokenizerObject>(
      "Tokenizer", {.save =
                        [](const TokenizerObject& object) {
                          if (!object.json.empty()) return object.json;
                          throw Error(
                              Errc::unsupported, "Tokenizer",
                              "it was not read from a tokenizer.json, as which it would be saved");
                        },
                    .load = &TokenizerObject::from_json_text});
  register_op<Tokenize>();
  register_op<Detokenize>();
}

}  // namespace tenon::text
