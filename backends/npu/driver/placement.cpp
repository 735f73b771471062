#include "placement.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <npu/isa/integer_math.hpp>

namespace tenon::npu {
namespace {

/// Strides between blocks of a map on chip are counted in lines of 16 bits.
constexpr std::int64_t max_pixels_on_chip = 65535;
constexpr std::int64_t alignment = 64;
/// The most states of the dynamic programming; beyond that, the best are kept (beam search).
constexpr std::size_t max_states = 512;

std::int64_t aligned(std::int64_t bytes) { return round_up(bytes, alignment); }

bool overlap(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

struct Candidate {
  std::size_t map;
  std::int64_t bytes;
  std::int64_t gain;  ///< bytes of external traffic that staying on chip avoids
  Lifetime life;
};

std::vector<Candidate> candidates(const Graph& graph, const std::vector<MapPlace>& places,
                                  const std::vector<Lifetime>& lives) {
  std::vector<std::int64_t> traffic(graph.maps.size(), 0);
  for (const Layer& layer : graph.layers) {
    const auto count = [&](MapId id) {
      if (id == no_map) return;
      // A part counts for the whole map that contains it.
      traffic[static_cast<std::size_t>(graph.root(id).map)] +=
          aligned(map_bytes(graph.map(id).dims, 5));
    };
    count(layer.input);
    count(layer.second);
    count(layer.output);
    for (const Post& post : layer.posts) count(post.other);
  }
  std::vector<Candidate> result;
  for (std::size_t i = 0; i < graph.maps.size(); ++i) {
    const FeatureMap& map = graph.maps[i];
    if (map.is_constant() || lives[i].first < 0 || places[i].log2c != 5) continue;
    if (map.dims.pixels() > max_pixels_on_chip) continue;
    const std::int64_t bytes = aligned(map_bytes(map.dims, 5));
    result.push_back({i, bytes, traffic[i], lives[i]});
  }
  return result;
}

std::vector<Candidate> chosen_global(std::vector<Candidate> all) {
  std::ranges::sort(all, [](const Candidate& a, const Candidate& b) {
    const std::int64_t left = a.gain * (b.life.last - b.life.first + 1);
    const std::int64_t right = b.gain * (a.life.last - a.life.first + 1);
    return left != right ? left > right : a.map < b.map;
  });
  return all;
}

std::vector<Candidate> chosen_evict(std::vector<Candidate> all, std::int64_t capacity) {
  std::ranges::sort(all, {}, [](const Candidate& c) { return std::pair(c.life.first, c.map); });
  std::vector<Candidate> live, kept;
  std::int64_t used = 0;
  for (const Candidate& next : all) {
    for (auto it = live.begin(); it != live.end();) {
      if (it->life.last >= next.life.first) {
        ++it;
        continue;
      }
      used -= it->bytes;
      kept.push_back(*it);
      it = live.erase(it);
    }
    live.push_back(next);
    used += next.bytes;
    while (used > capacity) {
      const auto furthest = std::ranges::max_element(
          live, [](const Candidate& a, const Candidate& b) { return a.life.last < b.life.last; });
      used -= furthest->bytes;
      live.erase(furthest);
    }
  }
  kept.insert(kept.end(), live.begin(), live.end());
  return kept;
}

// Dynamic programming: a state is the set of chosen maps that are live at a layer. Layer by layer,
// each map is chosen or not where its live range begins; of equal sets the one with the larger gain
// is kept.
std::vector<Candidate> chosen_dp(std::vector<Candidate> all, std::int64_t capacity) {
  std::ranges::sort(all, {}, [](const Candidate& c) { return std::pair(c.life.first, c.map); });
  struct State {
    std::int64_t gain = 0;
    std::int64_t used = 0;
    std::vector<std::size_t> chosen;
  };
  std::map<std::vector<std::size_t>, State> states{{{}, {}}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::map<std::vector<std::size_t>, State> after;
    const auto keep = [&](std::vector<std::size_t> live, State state) {
      const auto [it, fresh] = after.try_emplace(std::move(live), state);
      if (!fresh && it->second.gain < state.gain) it->second = std::move(state);
    };
    for (const auto& [set, before] : states) {
      std::vector<std::size_t> live;
      State state = before;
      for (const std::size_t c : set) {
        if (all[c].life.last < all[i].life.first) {
          state.used -= all[c].bytes;
        } else {
          live.push_back(c);
        }
      }
      keep(live, state);
      if (state.used + all[i].bytes > capacity) continue;
      state.used += all[i].bytes;
      state.gain += all[i].gain;
      state.chosen.push_back(i);
      live.push_back(i);
      keep(std::move(live), std::move(state));
    }
    while (after.size() > max_states) {
      after.erase(
          std::ranges::min_element(after, {}, [](const auto& entry) { return entry.second.gain; }));
    }
    states = std::move(after);
  }
  const auto best =
      std::ranges::max_element(states, {}, [](const auto& entry) { return entry.second.gain; });
  std::vector<Candidate> result;
  for (const std::size_t c : best->second.chosen) result.push_back(all[c]);
  // Placing large maps first leaves the least fragmentation.
  std::ranges::sort(result, {}, [](const Candidate& c) { return std::pair(-c.bytes, c.map); });
  return result;
}

}  // namespace

std::string_view to_string(Placement placement) noexcept {
  constexpr std::string_view names[] = {"none", "global", "dp", "evict", "best"};
  return names[static_cast<std::size_t>(placement)];
}

std::vector<Lifetime> lifetimes(const Graph& graph) {
  std::vector<Lifetime> lives(graph.maps.size());
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    const Layer& layer = graph.layers[i];
    const auto extend = [&](MapId id) {
      if (id == no_map || graph.map(id).is_constant()) return;
      Lifetime& life = lives[static_cast<std::size_t>(graph.root(id).map)];
      if (life.first < 0) life.first = static_cast<int>(i);
      life.last = static_cast<int>(i);
    };
    extend(layer.input);
    extend(layer.second);
    extend(layer.output);
    for (const Post& post : layer.posts) extend(post.other);
  }
  return lives;
}

void place_items(std::vector<PlacedItem>& items, std::int64_t begin, std::int64_t capacity) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;
    for (std::size_t j = 0; j < i; ++j) {
      if (items[j].begin < 0 || !overlap(items[i].life, items[j].life)) continue;
      taken.emplace_back(items[j].begin, items[j].begin + items[j].bytes);
    }
    std::ranges::sort(taken);
    std::int64_t at = begin;
    std::int64_t best = -1, best_hole = 0;
    const auto consider = [&](std::int64_t end) {
      const std::int64_t hole = end - at;
      if (hole >= items[i].bytes && (best < 0 || hole < best_hole)) {
        best = at;
        best_hole = hole;
      }
    };
    for (const auto& [from, to] : taken) {
      consider(from);
      at = std::max(at, to);
    }
    consider(begin + capacity);
    items[i].begin = best;
  }
}

std::int64_t place_maps(const Graph& graph, Placement strategy, std::int64_t begin,
                        std::int64_t capacity, std::vector<MapPlace>& places) {
  const std::vector<Lifetime> lives = lifetimes(graph);
  std::vector<Candidate> chosen = candidates(graph, places, lives);
  switch (strategy) {
    case Placement::none:
      chosen.clear();
      break;
    case Placement::global:
      chosen = chosen_global(std::move(chosen));
      break;
    case Placement::evict:
      chosen = chosen_evict(std::move(chosen), capacity);
      break;
    case Placement::dp:
    case Placement::best:
      chosen = chosen_dp(std::move(chosen), capacity);
      break;
  }
  std::vector<PlacedItem> on_chip;
  for (const Candidate& candidate : chosen)
    on_chip.push_back({candidate.bytes, candidate.life, -1});
  place_items(on_chip, begin, capacity);

  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!graph.maps[i].is_constant()) places[i].where = MapPlace::Where::nowhere;
  }
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (on_chip[i].begin < 0) continue;
    places[chosen[i].map].where = MapPlace::Where::ocm;
    places[chosen[i].map].offset = on_chip[i].begin;
  }
  std::vector<PlacedItem> rest;
  std::vector<std::size_t> ids;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].where != MapPlace::Where::nowhere || lives[i].first < 0) continue;
    ids.push_back(i);
  }
  std::ranges::sort(ids, {}, [&](std::size_t id) {
    return std::pair(-map_bytes(graph.maps[id].dims, places[id].log2c), id);
  });
  for (const std::size_t id : ids) {
    rest.push_back({aligned(map_bytes(graph.maps[id].dims, places[id].log2c)), lives[id], -1});
  }
  place_items(rest, 0, std::int64_t{1} << 62);
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    places[ids[i]].where = MapPlace::Where::ftmp;
    places[ids[i]].offset = rest[i].begin;
    bytes = std::max(bytes, rest[i].begin + rest[i].bytes);
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (graph.maps[i].whole == no_map) continue;
    const Graph::Root root = graph.root(static_cast<MapId>(i));
    const MapPlace& whole = places[static_cast<std::size_t>(root.map)];
    places[i].where = whole.where;
    places[i].offset = whole.offset + root.first_block * graph.maps[i].dims.pixels() * line_bytes;
  }
  return bytes;
}

}  // namespace tenon::npu
