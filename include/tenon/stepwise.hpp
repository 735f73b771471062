#pragma once

#include <tenon/backend.hpp>
#include <tenon/layout.hpp>
#include <tenon/quant_params.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

namespace tenon {

/// Additional interface of a backend whose results depend on which steps it compiles together
/// (int8: where a value is rounded, and to which grid). Without merging, a session uses it to
/// compile each step of a range that would otherwise be one partition.
class StepCompiler {
 public:
  virtual ~StepCompiler() = default;
  /// Compiles `steps[index]` of `program`. The partitions of all `steps`, bound to the same
  /// constants and run in order, must compute the same bytes as the one that Backend::compile()
  /// makes of all. Called in order of the index, from 0 on.
  virtual std::unique_ptr<Partition> compile_step(const Lowered& program,
                                                  std::span<const Step> steps,
                                                  std::size_t index) const = 0;
};

/// How a backend stores a value that it shows as f32.
struct StoredForm {
  Layout software;    ///< of the f32 value
  Layout hardware;    ///< of the integers, blocked
  QuantParams quant;  ///< real = integer (i8) * factor
};

/// Additional interface of a bound partition of one step that stores the step's value as integers.
/// They can be recovered from the f32 value: round(real / factor).
class StoresIntegers {
 public:
  virtual ~StoresIntegers() = default;
  virtual std::optional<StoredForm> stored_form() const = 0;
};

}  // namespace tenon
