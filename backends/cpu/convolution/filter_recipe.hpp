// Filters of convolutions as prepared constants.
#pragma once

#include "../kept_bytes.hpp"
#include "../prepared.hpp"

#include <tenon/host_view.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace tenon::cpu {

/// Makes a `Packed` of a constant filter: packed as `form` says by all threads of the pool. `key`
/// names the kind, its layout's version and the form. Filters are kept on disk.
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

  bool is_kept() const override { return true; }
  std::shared_ptr<const void> from_kept(const Shape& /*shape*/,
                                        const PreparedCache::Bytes& kept) const override {
    if (!is_usable(kept.bytes, Packed::packed_bytes(form_))) return nullptr;
    return std::make_shared<const Packed>(form_, kept);
  }
  std::span<const std::byte> bytes_to_keep(const void* made) const override {
    return static_cast<const Packed*>(made)->bytes();
  }

 private:
  Form form_;
  std::string key_;
};

}  // namespace tenon::cpu
