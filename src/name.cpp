#include <tenon/error.hpp>
#include <tenon/name.hpp>

#include <deque>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

namespace tenon {
namespace {

constexpr std::size_t max_length = 255;
constexpr std::size_t max_names = std::size_t{1} << 20;

struct Table {
  std::shared_mutex mutex;
  std::deque<std::string> texts{std::string()};  // a deque keeps references valid as it grows
  std::unordered_map<std::string_view, std::uint32_t> ids;
};

// Never destroyed: names are used from static destructors too.
Table& table() {
  static Table* const instance = new Table;
  return *instance;
}

}  // namespace

Name::Name(std::string_view text) {
  if (text.empty()) return;
  if (text.size() > max_length) {
    throw Error(Errc::limit_exceeded, "Name",
                "a name of " + std::to_string(text.size()) + " bytes; at most 255 are allowed");
  }
  Table& names = table();
  {
    const std::shared_lock lock(names.mutex);
    if (const auto found = names.ids.find(text); found != names.ids.end()) {
      id_ = found->second;
      return;
    }
  }
  const std::unique_lock lock(names.mutex);
  if (const auto found = names.ids.find(text); found != names.ids.end()) {
    id_ = found->second;
    return;
  }
  if (names.texts.size() >= max_names) {
    throw Error(Errc::limit_exceeded, "Name", "more than 2^20 distinct names in one process");
  }
  const std::string& stored = names.texts.emplace_back(text);
  id_ = static_cast<std::uint32_t>(names.texts.size() - 1);
  names.ids.emplace(stored, id_);
}

std::string_view Name::text() const noexcept {
  if (id_ == 0) return {};
  Table& names = table();
  const std::shared_lock lock(names.mutex);
  return names.texts[id_];
}

Name Name::from_id(std::uint32_t id) noexcept {
  Name name;
  name.id_ = id;
  return name;
}

}  // namespace tenon
