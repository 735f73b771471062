#include "support/case_file.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>

namespace tenon::testing {

using Json = nlohmann::json;
namespace fs = std::filesystem;

CaseFile::CaseFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  bytes_.assign(std::istreambuf_iterator<char>(in), {});
  std::uint64_t length = 0;
  if (bytes_.size() < sizeof length) throw std::runtime_error("no op cases in " + path.string());
  std::memcpy(&length, bytes_.data(), sizeof length);
  if (length > bytes_.size() - sizeof length) throw std::runtime_error("short " + path.string());
  data_ = sizeof length + length;
  header_ = Json::parse(bytes_.begin() + sizeof length,
                        bytes_.begin() + static_cast<std::ptrdiff_t>(data_));
}

Json CaseFile::cases() const {
  return Json::parse(header_.at("__metadata__").at("cases").get<std::string>());
}

HostBuffer CaseFile::array(const Json& entry) const {
  const auto dtype = find_dtype(entry.at("dtype").get<std::string>());
  if (!dtype) throw std::runtime_error("unknown dtype in " + entry.dump());
  const auto dims = entry.at("shape").get<std::vector<std::int64_t>>();
  HostBuffer array = HostBuffer::uninitialized(Shape(dims, *dtype));
  const auto offsets = header_.at(entry.at("array").get<std::string>()).at("data_offsets");
  const auto begin = offsets.at(0).get<std::size_t>();
  const auto size = offsets.at(1).get<std::size_t>() - begin;
  if (static_cast<std::int64_t>(size) != array.shape().bytes() ||
      data_ + begin + size > bytes_.size()) {
    throw std::runtime_error("wrong size of " + entry.dump());
  }
  std::memcpy(array.view().data, bytes_.data() + data_ + begin, size);
  return array;
}

std::vector<HostBuffer> CaseFile::arrays(const Json& entries) const {
  std::vector<HostBuffer> result;
  for (const Json& entry : entries) result.push_back(array(entry));
  return result;
}

std::vector<fs::path> files_like(const fs::path& folder, std::string_view start,
                                 std::string_view end) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(start) && name.ends_with(end)) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

std::vector<fs::path> generated_cases(std::string_view start) {
  const char* python = std::getenv("TENON_ORACLE_PYTHON");
  if (python == nullptr || *python == '\0') return {};
  const char* wanted = std::getenv("TENON_TEST_SEED");
  const std::string seed =
      wanted != nullptr ? wanted : std::to_string(std::random_device{}() % 1000000);
  std::cout << "cases: TENON_TEST_SEED=" << seed << '\n';
  std::vector<fs::path> made;
  for (const fs::path& script : files_like("python/tests", start, ".py")) {
    const fs::path output =
        fs::temp_directory_path() / (script.stem().string() + "_" + seed + ".safetensors");
    const std::string command =
        std::string(python) + " " + script.string() + " " + output.string() + " --seed " + seed;
    if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
    made.push_back(output);
  }
  return made;
}

}  // namespace tenon::testing
