#include "byte_reader.hpp"
#include "names.hpp"
#include "parsed_file.hpp"
#include "safetensors_header.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace tenon::io {
namespace {

constexpr std::uint64_t prefix_bytes = 8;  // the length of the header

using safetensors::Declaration;
using safetensors::Header;

std::uint64_t read_header_length(const InputFile& file, const Limits& limits) {
  const std::string where = file.name() + ":0";
  if (file.size() < prefix_bytes) {
    throw Error(Errc::truncated, where,
                fmt::format("{} bytes, a safetensors file has 8 at least", file.size()));
  }
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length == 0) throw Error(Errc::truncated, where, "a header of 0 bytes");
  if (length > limits.header_bytes) {
    throw Error(
        Errc::limit_exceeded, where,
        fmt::format("a header of {} bytes, at most {} are allowed", length, limits.header_bytes));
  }
  if (length > file.size() - prefix_bytes) {
    throw Error(Errc::truncated, where,
                fmt::format("a header of {} bytes, the file has {}", length, file.size()));
  }
  return length;
}

Header read_header(const InputFile& file, std::uint64_t length, const Limits& limits) {
  const auto parse = [&](const std::byte* bytes) {
    return safetensors::parse_header(
        {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length)}, file.name(),
        limits);
  };
  if (file.is_mapped()) return parse(file.mapped().data() + prefix_bytes);
  std::vector<std::byte> bytes(static_cast<std::size_t>(length));
  file.read(prefix_bytes, bytes);
  return parse(bytes.data());
}

// Every byte after the header belongs to exactly one tensor: nothing can hide between or after
// them.
void check_coverage(const InputFile& file, std::span<const Declaration> tensors,
                    std::span<const std::uint32_t> order, std::uint64_t data_bytes) {
  const auto fail = [&](Errc code, const Declaration& tensor, const std::string& message) {
    throw Error(code, fmt::format("{}:{}", file.name(), tensor.position),
                fmt::format("tensor {} {}", quote_name(tensor.name), message));
  };
  std::uint64_t covered = 0;
  for (const std::uint32_t i : order) {
    const Declaration& tensor = tensors[i];
    const auto range = [&] {
      return fmt::format("at bytes {} to {} of the data", tensor.begin, tensor.end);
    };
    if (tensor.end > data_bytes) {
      fail(Errc::bad_offset, tensor, fmt::format("{}, the file has {}", range(), data_bytes));
    }
    if (tensor.begin < covered) {
      fail(Errc::overlap, tensor, fmt::format("{} overlaps what lies before {}", range(), covered));
    }
    if (tensor.begin > covered) {
      fail(Errc::hole, tensor, fmt::format("{} leaves a hole from {} on", range(), covered));
    }
    const auto declared = static_cast<std::uint64_t>(tensor.shape.bytes());
    if (tensor.end - tensor.begin != declared) {
      fail(Errc::bad_shape, tensor,
           fmt::format("{}, but {} takes {}", range(), to_string(tensor.shape), declared));
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    throw Error(Errc::trailing_data,
                fmt::format("{}:{}", file.name(), file.size() - data_bytes + covered),
                fmt::format("{} bytes after the last tensor", data_bytes - covered));
  }
}

Metadata make_metadata(std::vector<std::pair<std::string, std::string>> pairs, std::string where) {
  auto kept =
      std::make_shared<const std::vector<std::pair<std::string, std::string>>>(std::move(pairs));
  std::vector<Metadata::Entry> entries;
  entries.reserve(kept->size());
  for (const auto& [key, text] : *kept) entries.push_back({key, std::string_view(text)});
  return {std::move(entries), kept, std::move(where)};
}

}  // namespace

ParsedFile read_safetensors(const std::shared_ptr<const InputFile>& file, const Limits& limits) {
  const std::uint64_t length = read_header_length(*file, limits);
  Header header = read_header(*file, length, limits);
  const std::uint64_t data_begin = prefix_bytes + length;

  std::vector<std::uint32_t> order(header.tensors.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  std::ranges::sort(order, {}, [&](std::uint32_t i) {
    return std::tuple{header.tensors[i].begin, header.tensors[i].end, i};
  });
  check_coverage(*file, header.tensors, order, file->size() - data_begin);

  ParsedFile parsed;
  parsed.tensors.reserve(order.size());
  for (const std::uint32_t i : order) {
    Declaration& tensor = header.tensors[i];
    parsed.tensors.push_back({std::move(tensor.name), tensor.shape, file, data_begin + tensor.begin,
                              tensor.end - tensor.begin});
  }
  parsed.metadata = make_metadata(std::move(header.metadata), file->name());
  return parsed;
}

}  // namespace tenon::io
