#include "graph/graph_registry.hpp"

#include "base/immortal.hpp"

#include <tenon/error.hpp>
#include <tenon/fork_locked_mutex.hpp>

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

namespace tenon::graph_registry {
namespace {

constexpr std::uint32_t slot_count = 1u << 16;

struct Slot {
  std::atomic<std::uint32_t> id{0};
  std::atomic<Graph::Impl*> graph{nullptr};
};

struct Registry {
  ForkLockedMutex mutex;
  std::vector<std::uint32_t> free_slots;
  std::uint32_t fresh = 1;  // slot 0 stays empty: id 0 is no graph
  std::array<Slot, slot_count> slots;
};

// Never destroyed: graphs may be destroyed by static destructors.
Registry& registry() {
  return process_wide([] { return Registry(); });
}

Slot& slot_of(std::uint32_t id) noexcept { return registry().slots[id % slot_count]; }

}  // namespace

std::uint32_t add() {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  std::uint32_t slot = 0;
  if (!all.free_slots.empty()) {
    slot = all.free_slots.back();
    all.free_slots.pop_back();
  } else if (all.fresh < slot_count) {
    slot = all.fresh++;
  } else {
    throw Error(Errc::limit_exceeded, "Graph", "more than 65535 graphs alive at once");
  }
  const std::uint32_t generation = all.slots[slot].id.load() / slot_count + 1;
  const std::uint32_t id = generation * slot_count + slot;
  all.slots[slot].id.store(id, std::memory_order_release);
  return id;
}

void attach(std::uint32_t id, Graph::Impl* graph) noexcept {
  slot_of(id).graph.store(graph, std::memory_order_release);
}

void remove(std::uint32_t id) noexcept {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  slot_of(id).graph.store(nullptr, std::memory_order_release);
  try {
    all.free_slots.push_back(id % slot_count);
  } catch (...) {
    // The slot is lost; that is harmless.
  }
}

Graph::Impl* find(std::uint32_t id) noexcept {
  Slot& slot = slot_of(id);
  if (id == 0 || slot.id.load(std::memory_order_acquire) != id) return nullptr;
  return slot.graph.load(std::memory_order_acquire);
}

}  // namespace tenon::graph_registry
