"""Programs of torch.export in memory that cannot be saved as they are: with their changes in place made functional."""

import operator

from ..importing.errors import unsupported

# Their results may share the memory of operands that are given as a list.
OF_SEVERAL = {"aten.meshgrid.default", "aten.meshgrid.indexing", "aten.broadcast_tensors.default",
              "aten.einsum.default", "aten.atleast_1d.Sequence", "aten.atleast_2d.Sequence",
              "aten.atleast_3d.Sequence"}


def decomposed(program):
    """The program after run_decompositions({}), which refuses first what that would compute otherwise."""
    for module in program.graph_module.modules():
        if hasattr(module, "graph"):
            _refuse_lost_changes(module.graph)
    return program.run_decompositions({})


def _refuse_lost_changes(graph):
    """run_decompositions({}) takes the results of ops of several operands for copies, and loses changes of what they share."""
    sharing = []  # of ops so far: the node, and the values that it may share memory with
    for node in graph.nodes:
        if str(node.target) in OF_SEVERAL:
            operands = node.all_input_nodes
            if "einsum" not in str(node.target) or len(operands) == 1:  # of several operands it is a product
                sharing.append((node, {_base(one) for one in (node, *operands)}))
        for changed in map(_base, _changed(node)):
            for other, values in sharing:
                if changed in values:
                    raise unsupported(f"{other.target} '{other.name}'",
                                      "it or its operand is changed in place, beside vmap or a value that cannot be saved, "
                                      "and PyTorch loses such changes: clone() it first")


def _changed(node):
    """The values that a node changes in place."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    given = [*node.args, *(node.kwargs.get(one.name) for one in schema.arguments[len(node.args):])]
    written = [value for value, one in zip(given, schema.arguments) if one.alias_info is not None and one.alias_info.is_write]
    each = [one for value in written for one in (value if isinstance(value, (list, tuple)) else [value])]
    return [one for one in each if hasattr(one, "op")]


def _base(node):
    """What a view is a view of, and an item of several results an item of."""
    while True:
        schema = getattr(node.target, "_schema", None)
        is_view = schema is not None and schema.returns and schema.returns[0].alias_info is not None
        if not (is_view or node.target is operator.getitem) or not node.args or not hasattr(node.args[0], "op"):
            return node
        node = node.args[0]
