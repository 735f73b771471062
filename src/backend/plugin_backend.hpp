#pragma once

#include <tenon/backend.hpp>
#include <tenon/error.hpp>

#include <memory>
#include <string>
#include <utility>

namespace tenon {

/// Calls into a plugin. Its exceptions are rethrown as this library's Error: an exception object of
/// the plugin would need the plugin's code when it is destroyed. Foreign exceptions become
/// Errc::plugin_fault.
template <class Call>
decltype(auto) guarded(const std::string& plugin, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const Error& error) {
    throw Error(error.code(), error.where(), error.message());
  } catch (const std::exception& error) {
    throw Error(Errc::plugin_fault, plugin, error.what());
  } catch (...) {
    throw Error(Errc::plugin_fault, plugin, "threw something that is no std::exception");
  }
}

/// A plugin's backend, for callers: it and all that it makes (partitions, packed weights) keep
/// `library` loaded, so that no code is unmapped under an object that needs it.
BackendPtr keep_loaded(BackendPtr backend, std::shared_ptr<const void> library);

}  // namespace tenon
