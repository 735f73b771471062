#include <tenon/fields.hpp>

#include <algorithm>

namespace tenon::detail {
namespace {

/// Where the first of comma-separated expressions ends: `Base<T, 2>::weight` is one.
std::size_t end_of_first(std::string_view list) {
  const std::size_t comma = std::min(list.find(','), list.size());
  if (list.substr(0, comma).find_first_of("<([{") == std::string_view::npos) return comma;
  int depth = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list.substr(i).starts_with("->")) {
      ++i;
    } else if (std::string_view("<([{").find(list[i]) != std::string_view::npos) {
      ++depth;
    } else if (std::string_view(">)]}").find(list[i]) != std::string_view::npos) {
      --depth;
    } else if (list[i] == ',' && depth == 0) {
      return i;
    }
  }
  return list.size();
}

/// Name `index` of a comma-separated list of members, of which those of a base may be `this->weight` and `Base::weight`.
std::string_view name_of(std::string_view names, std::size_t index) {
  for (; index > 0; --index) names.remove_prefix(std::min(end_of_first(names) + 1, names.size()));
  names = names.substr(0, end_of_first(names));
  while (!names.empty() && names.front() == ' ') names.remove_prefix(1);
  while (!names.empty() && names.back() == ' ') names.remove_suffix(1);
  constexpr std::string_view self = "this->";
  if (names.starts_with(self)) names.remove_prefix(self.size());
  if (const std::size_t of = names.rfind("::"); of != std::string_view::npos)
    names.remove_prefix(of + 2);
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
