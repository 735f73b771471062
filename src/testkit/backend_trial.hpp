// What the parts of check_backend() share: the backend, what was found, and which ops it ran.
#pragma once

#include <tenon/backends/reference.hpp>
#include <tenon/dtype.hpp>
#include <tenon/session.hpp>
#include <tenon/testkit.hpp>

#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon::testkit {

class BackendTrial {
 public:
  BackendTrial(BackendPtr backend, const BackendCheckOptions& options)
      : backend_(std::move(backend)), options_(options), reference_(make_reference_backend({})) {
    chain_ = {backend_};
    chain_.insert(chain_.end(), options.behind.begin(), options.behind.end());
    if (options.behind.empty()) chain_.push_back(reference_);
  }

  const BackendPtr& backend() const noexcept { return backend_; }
  const BackendCheckOptions& options() const noexcept { return options_; }
  /// The backend and what stands behind it, and the reference alone.
  SessionOptions chain(bool results_on_device = false) const {
    SessionOptions options{.backends = chain_};
    options.results_on_device = results_on_device;
    return options;
  }
  /// The same with another one in the backend's place.
  SessionOptions chain_with(const BackendPtr& first) const {
    SessionOptions options = chain();
    options.backends.front() = first;
    return options;
  }
  SessionOptions reference() const { return {.backends = {reference_}}; }

  /// What the results of a type may differ by: `times` the tolerance.
  double tolerance(DType dtype, double times = 1) const {
    const double last_place = dtype == DType::f16    ? 1.0 / 1024
                              : dtype == DType::bf16 ? 1.0 / 128
                                                     : 0;
    return times * (options_.tolerance > 2 * last_place ? options_.tolerance : 2 * last_place);
  }

  /// Of one subject, such as an op, only the first few findings are of use.
  void add(const std::string& subject, const std::string& what) {
    constexpr int most = 4;
    const int count = ++counts_[subject];
    if (count > most) return;
    result.findings.push_back(
        fmt::format("{}: {} (seed {}){}", subject, what, options_.seed,
                    count == most ? "; what else is found of it is left out" : ""));
  }
  /// What `check` throws is a finding.
  template <class Check>
  bool guarded(const std::string& subject, const std::string& what, const Check& check) {
    if (options_.on_trial) options_.on_trial(fmt::format("{}: {}", subject, what));
    try {
      check();
      return true;
    } catch (const std::exception& error) {
      add(subject, fmt::format("{} threw: {}", what, error.what()));
    } catch (...) {
      add(subject, what + " threw what is no std::exception");
    }
    return false;
  }

  BackendCheck result;

 private:
  BackendPtr backend_;
  BackendCheckOptions options_;
  BackendPtr reference_;
  std::vector<BackendPtr> chain_;
  std::map<std::string, int> counts_;
};

/// Bytes of the backend's memory, read and written as sessions do.
void check_backend_memory(BackendTrial& trial);
/// Every registered op by itself.
void check_backend_ops(BackendTrial& trial);
/// Models, and all that sessions do with them.
void check_backend_models(BackendTrial& trial);

}  // namespace tenon::testkit
