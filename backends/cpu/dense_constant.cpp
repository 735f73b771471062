#include "dense_constant.hpp"

#include <string>

namespace tenon::cpu {
namespace {

class DenseConstant final : public Recipe {
 public:
  std::string key(const Shape& /*shape*/) const override { return "dense"; }
  std::shared_ptr<const void> make(const HostBuffer& value, ThreadPool& /*pool*/,
                                   const Done& done) const override {
    done(value.shape().bytes());
    return std::make_shared<const HostBuffer>(value);
  }
};

}  // namespace

std::shared_ptr<const Recipe> dense_constant() { return std::make_shared<const DenseConstant>(); }

}  // namespace tenon::cpu
