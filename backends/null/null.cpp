#include <tenon/backend.hpp>
#include <tenon/backends/null.hpp>
#include <tenon/error.hpp>

#include <memory>

namespace tenon {
namespace {

// A backend in its smallest form. To start one: answer `refuses` per op (a table of op and
// constraint), turn steps into work in `compile`, pack weights in `bind`, do the work in `run`.
class NullBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "null"; }
  MemRegion& region() const override { return cpu_device()->default_mem_region(); }
  std::optional<std::string> refuses(const Step&) const override { return "null runs nothing"; }
  std::unique_ptr<Partition> compile(const Lowered&, std::span<const Step> steps) const override {
    throw Error(Errc::unsupported, "null",
                steps.empty() ? "nothing to compile" : "was given '" + steps[0].value + "'");
  }
};

}  // namespace

BackendPtr make_null_backend(const BackendOptions&) {
  return std::make_shared<const NullBackend>();
}

void register_null_backend() { register_backend("null", make_null_backend); }

}  // namespace tenon
