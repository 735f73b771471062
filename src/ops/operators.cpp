#include <tenon/ops/binary.hpp>
#include <tenon/ops/fill.hpp>
#include <tenon/ops/operators.hpp>
#include <tenon/ops/unary.hpp>

namespace tenon {
namespace {

Tensor scalar(double value, const Located& beside) {
  return scalar_like(beside.tensor, value, beside.where);
}

}  // namespace

Tensor operator+(const Located& a, const Located& b) { return add(a.tensor, b.tensor, a.where); }
Tensor operator-(const Located& a, const Located& b) { return sub(a.tensor, b.tensor, a.where); }
Tensor operator*(const Located& a, const Located& b) { return mul(a.tensor, b.tensor, a.where); }
Tensor operator/(const Located& a, const Located& b) { return div(a.tensor, b.tensor, a.where); }
Tensor operator-(const Located& x) { return neg(x.tensor, x.where); }

Tensor operator+(const Located& a, double b) { return add(a.tensor, scalar(b, a), a.where); }
Tensor operator-(const Located& a, double b) { return sub(a.tensor, scalar(b, a), a.where); }
Tensor operator*(const Located& a, double b) { return mul(a.tensor, scalar(b, a), a.where); }
Tensor operator/(const Located& a, double b) { return div(a.tensor, scalar(b, a), a.where); }

Tensor operator+(double a, const Located& b) { return add(scalar(a, b), b.tensor, b.where); }
Tensor operator-(double a, const Located& b) { return sub(scalar(a, b), b.tensor, b.where); }
Tensor operator*(double a, const Located& b) { return mul(scalar(a, b), b.tensor, b.where); }
Tensor operator/(double a, const Located& b) { return div(scalar(a, b), b.tensor, b.where); }

}  // namespace tenon
