#include "base/atomic_file.hpp"
#include "base/utf8.hpp"
#include "names.hpp"
#include "safetensors_format.hpp"
#include "write_tensors.hpp"

#include <tenon/error.hpp>
#include <tenon/io/save.hpp>
#include <tenon/memory_errors.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tenon::io {
namespace {

constexpr std::string_view save_safetensors_name = "save_safetensors";

// Keys keep the order of the data, as in the files of the reference.
using Json = nlohmann::ordered_json;

std::string json_text(std::string_view text) { return Json(text).dump(); }

std::vector<std::uint32_t> file_order(std::span<const NamedTensor> tensors) {
  std::vector<std::uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
    const int rank_a = safetensors::dtype_order(tensors[a].data.shape().dtype());
    const int rank_b = safetensors::dtype_order(tensors[b].data.shape().dtype());
    return rank_a != rank_b ? rank_a > rank_b : tensors[a].name < tensors[b].name;
  });
  return order;
}

std::string metadata_text(const std::map<std::string, std::string>& metadata) {
  std::string text = json_text(safetensors::metadata_key) + ":{";
  for (bool first = true; const auto& [key, value] : metadata) {
    if (!is_utf8(key) || !is_utf8(value)) {
      throw Error(Errc::bad_encoding, std::string(save_safetensors_name),
                  fmt::format("metadata {} is not valid UTF-8", quote_name(key)));
    }
    if (!first) text += ',';
    first = false;
    text += json_text(key) + ':' + json_text(value);
  }
  return text + '}';
}

std::string header_text(std::span<const NamedTensor> tensors, std::span<const std::uint32_t> order,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += metadata_text(metadata);
  std::int64_t begin = 0;
  for (const std::uint32_t i : order) {
    const Shape& shape = tensors[i].data.shape();
    const std::int64_t end = checked_add(begin, shape.bytes());
    if (text.size() > 1) text += ',';
    text += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json_text(tensors[i].name), safetensors::dtype_word(shape.dtype()),
                        fmt::join(shape.dims(), ","), begin, end);
    begin = end;
  }
  text += '}';
  constexpr std::size_t step = 8;  // so that the data begins aligned
  text.append((step - text.size() % step) % step, ' ');
  return text;
}

void save(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
          const std::map<std::string, std::string>& metadata) {
  check_tensor_names(tensors, save_safetensors_name);
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name == safetensors::metadata_key) {
      throw Error(Errc::bad_key, std::string(save_safetensors_name),
                  quote_name(tensor.name) + " names the metadata");
    }
    const DType dtype = tensor.data.shape().dtype();
    if (safetensors::dtype_word(dtype).empty()) {
      throw Error(Errc::unsupported_dtype, std::string(save_safetensors_name),
                  fmt::format("tensor {} is {}, which safetensors lacks", quote_name(tensor.name),
                              name(dtype)));
    }
  }
  const std::vector<std::uint32_t> order = file_order(tensors);
  const std::string header = header_text(tensors, order, metadata);
  AtomicFile file(path);
  file.write_number(static_cast<std::uint64_t>(header.size()));
  file.write(header);
  for (const std::uint32_t i : order) write_array(file, tensors[i].data);
  file.commit();
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                      const std::map<std::string, std::string>& metadata) {
  with_memory_errors(path.native(), [&] { save(path, tensors, metadata); });
}

}  // namespace tenon::io
