#pragma once

#include <tenon/backend.hpp>
#include <tenon/error.hpp>
#include <tenon/fork_locked_mutex.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace tenon {

/// Calls into a plugin. Its exceptions are rethrown as this library's Error: an exception object of
/// the plugin would need the plugin's code when it is destroyed. std::bad_alloc becomes
/// Errc::out_of_memory, other foreign exceptions Errc::plugin_fault.
template <class Call>
decltype(auto) guarded(const std::string& plugin, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const Error& error) {
    throw Error(error.code(), error.where(), error.message());
  } catch (const std::bad_alloc&) {
    throw Error(Errc::out_of_memory, plugin, "not enough memory");
  } catch (const std::exception& error) {
    throw Error(Errc::plugin_fault, plugin, error.what());
  } catch (...) {
    throw Error(Errc::plugin_fault, plugin, "threw something that is no std::exception");
  }
}

/// The devices whose memory a plugin's backends have shown. Arrays in it need the plugin's code, and
/// may outlive the backends. Destroyed while that code is mapped. Thread-safe.
class PluginDevices {
 public:
  /// Before anybody else allocates memory there: the chunks that exist are the device's own.
  void add(const MemRegion& region);
  bool has_arrays() const;

 private:
  struct Entry {
    std::weak_ptr<const Device> device;
    std::size_t own_chunks;
  };
  mutable ForkLockedMutex mutex_;
  std::vector<Entry> entries_;
};

/// A plugin's backend, for callers: it and all that it makes (partitions, packed weights) keep
/// `library` loaded, so that no code is unmapped under an object that needs it. `devices`: where the
/// backend's device is noted; lives as long as the library is loaded, and may be null.
BackendPtr keep_loaded(BackendPtr backend, std::shared_ptr<const void> library,
                       PluginDevices* devices);

}  // namespace tenon
