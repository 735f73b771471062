#include <tenon/fields.hpp>

namespace tenon::detail {
namespace {

/// Name `index` of a comma-separated list.
std::string_view name_of(std::string_view names, std::size_t index) {
  for (; index > 0; --index) names.remove_prefix(names.find(',') + 1);
  names = names.substr(0, names.find(','));
  while (!names.empty() && names.front() == ' ') names.remove_prefix(1);
  while (!names.empty() && names.back() == ' ') names.remove_suffix(1);
  return names;
}

void append(std::string& path, std::string_view part) {
  if (!path.empty()) path += '.';
  path += part;
}

}  // namespace

void FieldWalk::add(const void* from, void* to) { fields_.push_back({path_, from, to}); }

FieldWalk::Part::Part(FieldWalk& walk, std::string_view names, std::size_t index)
    : walk_(walk), length_(walk.path_.size()) {
  append(walk.path_, name_of(names, index));
}

FieldWalk::Part::Part(FieldWalk& walk, std::size_t index)
    : walk_(walk), length_(walk.path_.size()) {
  append(walk.path_, std::to_string(index));
}

FieldWalk::Part::Part(FieldWalk& walk, const std::string& key)
    : walk_(walk), length_(walk.path_.size()) {
  append(walk.path_, key);
}

FieldWalk::Part::~Part() { walk_.path_.resize(length_); }

}  // namespace tenon::detail
