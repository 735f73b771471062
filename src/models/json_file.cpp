#include "json_file.hpp"

#include "base/strict_json.hpp"

#include <tenon/error.hpp>

#include <fstream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

namespace tenon::models {

namespace {
constexpr std::uintmax_t max_bytes = std::uintmax_t{16} << 20;
}

JsonDocument read_json(const std::filesystem::path& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) throw Error(Errc::not_found, path.string(), error.message());
  if (size > max_bytes) {
    throw Error(Errc::limit_exceeded, path.string(), std::to_string(size) + " bytes of JSON");
  }
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in.good() && !in.eof()) throw Error(Errc::io_error, path.string(), "cannot be read");
  return parse_strict_json(text, path.string());
}

}  // namespace tenon::models
