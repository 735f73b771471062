// Filters of convolutions as prepared constants.
#pragma once

#include "../prepared.hpp"

#include <tenon/host_view.hpp>

#include <memory>
#include <string>
#include <utility>

namespace tenon::cpu {

/// Makes a `Packed` of a constant filter: packed as `form` says by all threads of the pool. `key`
/// names the kind and the form.
template <class Packed, class Form>
class FilterRecipe final : public Recipe {
 public:
  FilterRecipe(const Form& form, std::string key) : form_(form), key_(std::move(key)) {}

  std::string key(const Shape& /*shape*/) const override { return key_; }
  std::shared_ptr<const void> make(const HostBuffer& value, ThreadPool& pool,
                                   const Done& done) const override {
    auto filter = std::make_shared<Packed>(form_);
    const HostView w(value.view().data, value.shape());
    pool.run([&](Worker& worker) { filter->pack(w, worker.thread, worker.threads); });
    value.release_pages();
    done(value.shape().bytes());
    return filter;
  }

 private:
  Form form_;
  std::string key_;
};

}  // namespace tenon::cpu
