#include "base/suggestion.hpp"
#include "graph/graph_impl.hpp"

#include <tenon/error.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/graph.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/weights_view.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon {
namespace {

// Room for every declaration: a node, its name and alignment.
std::size_t budget(std::span<const std::pair<std::string, Shape>> weights) {
  std::size_t bytes = 4096;
  for (const auto& [name, shape] : weights) bytes += sizeof(Node) + name.size() + 64;
  return bytes;
}

}  // namespace

struct WeightsView::Source {
  Source(std::string file, std::span<const std::pair<std::string, Shape>> list)
      : origin(std::move(file)), weights(list.begin(), list.end()), graph(budget(list)) {
    graph.impl().declares_only = true;
    graph.impl().origin = origin;
  }

  std::string origin;
  std::map<std::string, Shape, std::less<>> weights;
  std::map<std::string, Tensor, std::less<>> declared;
  ForkAwareMutex mutex{"WeightsView"};
  Graph graph;
};

WeightsView::WeightsView(std::string origin, std::span<const std::pair<std::string, Shape>> weights)
    : source_(with_memory_errors("WeightsView", [&] {
        auto source = std::make_shared<Source>(std::move(origin), weights);
        source->graph.impl().declared_by = source;
        return source;
      })) {}

WeightsView WeightsView::operator[](std::string_view part) const {
  return with_memory_errors("WeightsView",
                            [&] { return WeightsView(source_.shared(), full_name(part)); });
}

WeightsView WeightsView::operator[](std::int64_t index) const {
  return (*this)[std::string_view(std::to_string(index))];
}

std::string WeightsView::full_name(std::string_view name) const {
  return prefix_.empty() ? std::string(name) : fmt::format("{}.{}", prefix_, name);
}

const std::string& WeightsView::origin() const { return source_->origin; }

bool WeightsView::contains(std::string_view name) const {
  return source_->weights.contains(full_name(name));
}

std::optional<Tensor> WeightsView::find(std::string_view name,
                                        const std::source_location& where) const {
  return with_memory_errors("WeightsView", [&] { return declared(name, where); });
}

std::optional<Tensor> WeightsView::declared(std::string_view name,
                                            const std::source_location& where) const {
  const std::string full = full_name(name);
  const std::scoped_lock lock(source_->mutex);
  const auto weight = source_->weights.find(full);
  if (weight == source_->weights.end()) return std::nullopt;
  if (const auto known = source_->declared.find(full); known != source_->declared.end()) {
    return known->second;
  }
  const Tensor tensor = source_->graph.constant(full, weight->second, where);
  source_->declared.emplace(full, tensor);
  return tensor;
}

Tensor WeightsView::tensor(std::string_view name, const std::source_location& where) const {
  if (auto found = find(name, where)) return *found;
  std::vector<std::string_view> here, all;
  for (const auto& [known, shape] : source_->weights) {
    if (known.starts_with(prefix_) && here.size() < 5) here.push_back(known);
    all.push_back(known);
  }
  const std::string full = full_name(name);
  throw Error(
      Errc::bad_reference, where,
      fmt::format("{} has no tensor '{}'; it has {} tensors, here {}{}", source_->origin, full,
                  all.size(), here.empty() ? "none" : fmt::format("{}", fmt::join(here, ", ")),
                  suggestion(full, all)));
}

Tensor WeightsView::tensor(std::string_view name, std::span<const std::int64_t> dims,
                           const std::source_location& where) const {
  Tensor found = tensor(name, where);
  if (!std::ranges::equal(found.shape().dims(), dims)) {
    throw Error(Errc::shape_mismatch, where,
                fmt::format("'{}' of {} is {}, expected [{}]", full_name(name), source_->origin,
                            to_string(found.shape()), fmt::join(dims, ", ")));
  }
  return found;
}

std::int64_t WeightsView::count() const {
  const std::string start = prefix_.empty() ? "" : prefix_ + ".";
  std::int64_t count = 0;
  for (auto it = source_->weights.lower_bound(start);
       it != source_->weights.end() && it->first.starts_with(start); ++it) {
    const std::string_view rest = std::string_view(it->first).substr(start.size());
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error == std::errc() && number >= 0 && end != rest.data() + rest.size() && *end == '.') {
      count = std::max(count, number + 1);
    }
  }
  return count;
}

}  // namespace tenon
