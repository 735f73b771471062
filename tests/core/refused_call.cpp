// Calls of a compiled model, and models, that the compiler refuses in one error; check_refused_call.cmake
// compiles one CASE at a time.
#include <tenon/exe.hpp>

#include <list>
#include <string>
#include <utility>

namespace {

template <class T = tenon::Tensor>
struct Sum {
  T weight;
  TENON_FIELDS(weight)
  tenon::Tensor forward(const tenon::Tensor& x, const tenon::Tensor&) const { return x; }
};

struct Plain {
  tenon::Tensor weight;
  TENON_FIELDS(weight)
  tenon::Tensor forward(const tenon::Tensor& x) const { return x; }
};

template <class T = tenon::Tensor>
struct Listed {
  std::list<Sum<T>> parts;
  TENON_FIELDS(parts)
};

template <class T = tenon::Tensor>
struct Array {
  T parts[2];
  TENON_FIELDS(parts)
};

template <class T = tenon::Tensor>
struct TakesPlain {
  TENON_FIELDS()
  tenon::Tensor forward(const Plain& x) const { return x.weight; }
};

template <class T = tenon::Tensor>
struct Weightless {
  TENON_FIELDS()
  tenon::Tensor forward(const tenon::Tensor& x) const { return x; }
};

}  // namespace

#if defined(CASE_no_template)
void call(const tenon::Exe<&Plain::forward>& exe, const Plain& weights) { exe.bind(weights); }
#elif defined(CASE_other_container)
void call(const Listed<>& model) {
  tenon::visit_fields(model, [](const std::string&, const tenon::Tensor&) {});
}
#elif defined(CASE_c_array)
void call(const Array<>& model) {
  tenon::visit_fields(model, [](const std::string&, const tenon::Tensor&) {});
}
#elif defined(CASE_plain_argument)
void call(const tenon::Exe<&TakesPlain<>::forward>& exe) { exe.program(); }
#else
void call(const tenon::Exe<&Weightless<>::forward>& exe) { exe.bind({}); }
void call(tenon::BoundExe<&Sum<>::forward>& run, tenon::Buffer& x, const tenon::Shape& shape) {
  static_cast<void>(shape);
#if defined(CASE_good)
  run(x, std::move(x));
#elif defined(CASE_too_many)
  run(x, x, x);
#elif defined(CASE_too_few)
  run(x);
#elif defined(CASE_other_type)
  run(x, shape.rank());
#else
#error "no CASE"
#endif
}
#endif
