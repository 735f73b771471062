#include "base/immortal.hpp"

#include <tenon/error.hpp>
#include <tenon/fork_locked_mutex.hpp>
#include <tenon/name.hpp>

#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

namespace tenon {
namespace {

constexpr std::size_t max_name_bytes = 255;
constexpr std::size_t max_names = std::size_t{1} << 20;

/// FNV-1a (Fowler, Noll, Vo): the same number in every copy of the core.
std::uint32_t hash_of(std::string_view text) noexcept {
  std::uint32_t hash = 2166136261U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

}  // namespace

struct Name::Table {
  ForkLockedMutex mutex;
  // Deques keep references valid as they grow. Names count from 1.
  std::deque<std::string> texts;
  std::deque<Entry> entries;
  std::unordered_map<std::string_view, const Entry*> by_text;
};

// Never destroyed: names are used from static destructors too.
Name::Table& Name::table() {
  return process_wide([] { return Table(); });
}

Name::Name(std::string_view text) {
  if (text.empty()) return;
  if (text.size() > max_name_bytes) {
    throw Error(Errc::limit_exceeded, "Name",
                "a name of " + std::to_string(text.size()) + " bytes; at most 255 are allowed");
  }
  Table& names = table();
  const std::scoped_lock lock(names.mutex);
  if (const auto found = names.by_text.find(text); found != names.by_text.end()) {
    entry_ = found->second;
    return;
  }
  if (names.entries.size() + 1 >= max_names) {
    throw Error(Errc::limit_exceeded, "Name", "more than 2^20 distinct names in one process");
  }
  const std::string& stored = names.texts.emplace_back(text);
  const Entry& entry = names.entries.emplace_back(
      Entry{static_cast<std::uint32_t>(names.entries.size() + 1), hash_of(text), stored});
  names.by_text.emplace(stored, &entry);
  entry_ = &entry;
}

Name Name::from_id(std::uint32_t id) noexcept {
  Name name;
  if (id == 0) return name;
  Table& names = table();
  const std::scoped_lock lock(names.mutex);
  name.entry_ = &names.entries[id - 1];
  return name;
}

}  // namespace tenon
