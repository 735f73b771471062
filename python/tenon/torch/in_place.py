"""Changes in place, as programs have them: what a changed value is a view of gets the view's new elements."""

from ..importing import sizes as sz
from ..importing.errors import malformed, unsupported
from ..importing.values import Value
from .archive import get
from .decomposed import OF_SEVERAL
from .indexing import select_scatter, slice_scatter
from .node import COPIES_OR_VIEWS, HANDLERS, SAME_IF_EQUAL, VIEWS, VIEWS_IF_DENSE, Node
from .records import first_tensor, functional_name, is_in_place, names_of, output_names, target_of, trace_of
from .shapes import parts, permuted
from .strides import as_strided_scatter, by_places, dense_strides

PUTS = {}  # op: function(n, base, new, output, **arguments) that returns the new base


def puts(*names):
    def mark(function):
        for name in names:
            PUTS[f"aten.{name}"] = function
        return function
    return mark


@puts("alias.default", "detach.default", "contiguous.default", *(name.removeprefix("aten.") for name in SAME_IF_EQUAL))
def same(n, base, new, output, **_):
    return new


@puts("view.default", "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "flatten.using_ints",
      "unflatten.int", "view_as.default", "reshape.default", "reshape_as.default", "atleast_1d.default",
      "atleast_2d.default", "atleast_3d.default")
def reshaped(n, base, new, output, **_):
    return n.b.reshape_to(new, base.shape)


@puts("permute.default")
def permute(n, base, new, output, dims):
    order = [n.axis(one, base.rank) for one in dims]
    return permuted(n, new, [order.index(i) for i in range(base.rank)])


@puts("transpose.int", "t.default", "swapaxes.default", "swapdims.default")
def transpose(n, base, new, output, dim0=0, dim1=1, axis0=None, axis1=None):
    dim0, dim1 = dim0 if axis0 is None else axis0, dim1 if axis1 is None else axis1
    order = list(range(base.rank))
    if base.rank > 1:
        first, second = n.axis(dim0, base.rank), n.axis(dim1, base.rank)
        order[first], order[second] = second, first
    return permuted(n, new, order)


@puts("select.int")
def select(n, base, new, output, dim, index):
    return select_scatter(n, base, new, dim, index)


@puts("slice.Tensor")
def slice_(n, base, new, output, dim=0, start=None, end=None, step=1):
    return slice_scatter(n, base, new, dim, start, end, step)


@puts("narrow.default")
def narrow(n, base, new, output, dim, start, length):
    return slice_scatter(n, base, new, dim, start, sz.add(start, length))


@puts("split.Tensor", "split_with_sizes.default", "chunk.default", "split.sizes")
def split(n, base, new, output, split_size=None, split_sizes=None, chunks=None, dim=0):
    axis = n.axis(dim, base.rank)
    sizes = parts(n, n.known_size(base, axis), split_size, split_sizes, chunks, None, None)
    begin = sum(sizes[:output])
    return slice_scatter(n, base, new, axis, begin, begin + sizes[output])


@puts("unbind.int")
def unbind(n, base, new, output, dim=0):
    return select_scatter(n, base, new, dim, output)


@puts("as_strided.default")
def as_strided(n, base, new, output, size, stride, storage_offset=None):
    return as_strided_scatter(n, base, new, size, stride, storage_offset)


@puts("_conj.default", "conj.default")
def conjugate(n, base, new, output):
    return HANDLERS["aten._conj.default"](n, new)


@puts("resize_.default")
def resize(n, base, new, output, size, memory_format=None):
    return as_strided_scatter(n, base, new, size, dense_strides(n, size))


class Views:
    """The part of the importer that knows which values share memory."""

    def shares_memory(self, node, target, scope):
        """Whether the results of a node are views of its first argument, as far as changes in place go."""
        if target in VIEWS or is_in_place(target):
            return True
        base, names = first_tensor(node), output_names(node)
        if target in OF_SEVERAL:
            others = [one for record in node.get("inputs", []) for one in names_of(record.get("arg"))
                      if one in scope.metas]
            if "einsum" not in target or len(others) == 1:  # of several operands it is a product
                scope.doubtful.extend((name, other, node) for name in names for other in others)
            return False
        if base is None or base not in scope.metas or not names or names[0] not in scope.metas:
            return False
        if target in SAME_IF_EQUAL:
            return self.meta(scope, base)[0] == self.meta(scope, names[0])[0]
        if target not in VIEWS_IF_DENSE | COPIES_OR_VIEWS:
            return False
        if target in VIEWS_IF_DENSE and self._is_dense(base, scope):
            return True
        if target != "aten.contiguous.default":
            scope.doubtful.append((names[0], base, node))
        return False

    def _is_dense(self, name, scope):
        """Whether a value's elements lie in memory in the order of its axes, one after the other."""
        record = scope.metas[name]
        sizes, strides = (tuple(self.size(one, f"'{name}'") for one in get(record, field, list, f"'{name}'"))
                          for field in ("sizes", "strides"))
        want = 1
        for size, stride in reversed(list(zip(sizes, strides))):
            if size is None or stride is None or size != 1 and stride != want:
                return False
            want = sz.mul(want, size)
        return True

    def write_back(self, node, target, scope, new):
        """Puts a value that was changed in place into what it is a view of; other views are computed again."""
        name = first_tensor(node)
        if name is None:
            raise malformed(target, "no tensor to change in place")
        while name in scope.views:
            base, view = scope.views[name]
            if is_in_place(target_of(view, "")):
                name = base
                continue
            new = self._put(view, name, base, scope, new)
            name = base
        self._check_doubtful(name, scope)
        for other in self._views_of(name, scope):
            scope.values.pop(other, None)
        scope.values[name] = new

    def _views_of(self, root, scope):
        return [name for name in scope.views if self._root(name, scope) == root]

    def _root(self, name, scope):
        while name in scope.views:
            name = scope.views[name][0]
        return name

    def _check_doubtful(self, root, scope):
        """Refuses a change of what values that are used later may or may not share the memory of."""
        roots = [(self._root(name, scope), self._root(base, scope)) for name, base, _ in scope.doubtful]
        doubted = {root}
        while True:
            reached = next((at for at, pair in enumerate(roots) if len(doubted.intersection(pair)) == 1), None)
            if reached is None:
                return
            [other] = set(roots[reached]) - doubted
            if any(scope.last_use.get(one, -1) > scope.at for one in (other, *self._views_of(other, scope))):
                break
            doubted.add(other)
        name, _, node = scope.doubtful[reached]
        target = target_of(node, "")  # of several, run_decompositions({}) itself loses the change
        raise unsupported(f"{target} '{name}'", "whether it is a copy is not known, and it or its operand is changed in "
                          f"place: export with run_decompositions({'' if target in OF_SEVERAL else '{}'})")

    def _put(self, view, name, base, scope, new):
        """The base of a view, with the view's elements replaced."""
        target = functional_name(target_of(view, ""))
        put = PUTS.get(target)
        described = [base] if put is not None else output_names(view)
        n = Node(view.get("name") or name, target, trace_of(view), self,
                 [self.meta_or_none(scope, one) for one in described], source=scope.metas.get(base))
        arguments = self.arguments(view, scope, n)
        first, *_ = arguments
        value = arguments.pop(first)
        if not isinstance(value, Value):
            raise n.error("its result is changed in place, which is not supported")
        output = output_names(view).index(name)
        try:
            if put is None:
                return by_places(n, HANDLERS[target], first, value, new, output, arguments)
            return put(n, value, new, output, **arguments)
        except (TypeError, IndexError, ValueError) as error:
            raise malformed(n.where, str(error)) from error
