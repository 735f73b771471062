"""Updates in place: no value is read after an op has overwritten its storage."""
from collections import Counter

from ..program import TENSOR, TUPLE
from ..schema import OPS
from ..tensors import is_linear_object


class Root:
    """Storage that values share. Each update makes a new version of it."""

    def __init__(self, latest, origin="made", parameter=None, is_object=False):
        self.latest, self.origin, self.parameter = latest, origin, parameter
        self.is_object = is_object  # of a linear class: its copies are the object itself
        self.version, self.consumer = 0, None


class Holder:
    """A value's storage, the version it belongs to, and whether it is all of it, not a view."""

    def __init__(self, root, version=0, whole=True):
        self.root, self.version, self.whole = root, version, whole


class LinearityChecker:
    def __init__(self, function, summaries, found):
        self.function, self.summaries, self.found = function, summaries, found
        self.holders, self.tuples, self.roots = {}, {}, []
        self.values = function.values

    def fresh(self, name, origin="made", parameter=None, is_object=False):
        root = Root(name, origin, parameter, is_object)
        self.roots.append(root)
        return Holder(root)

    def run(self):
        """What a call consumes, by parameter; and for each result (parameter or None, whole, root, whether no other has it)."""
        function = self.function
        for k, value in enumerate(function.parameters):
            if value.kind == TENSOR:
                self.holders[value.name] = self.fresh(value.name, "parameter", k, declares_object(value))
        for made in function.body:
            for k, name in enumerate(made.operands):
                self.read(name, self.holders.get(name), made, k)
            getattr(self, "step_" + made.kind)(made)
        consumes = {root.parameter for root in self.roots if root.parameter is not None and root.version}
        results = []
        for k, name in enumerate(function.results):
            holder = self.holders[name]
            self.read(name, holder, None, k)
            if holder.root.is_object and any(self.shares(name, other) for other in function.results[:k]):
                self.complain(f"'{name}' is returned twice: it is one object", None, k)
            results.append((holder.root.parameter, holder.whole, holder.root))
        counts = Counter(root for _, _, root in results)
        return consumes, [(*result, counts[result[2]] == 1) for result in results]

    def complain(self, message, made, operand):
        if made is None:
            self.found.at_return("Alias", message, self.function, operand)
        else:
            self.found.at("Alias", message, made, operand)

    def read(self, name, holder, made, operand):
        if holder is None or holder.version == holder.root.version:
            return
        root = holder.root
        at = f" at line {root.consumer.line}" if root.consumer.line else ""
        item = "an item of " if self.values[root.latest].kind == TUPLE else ""
        self.complain(f"'{name}' was consumed{at} by {root.consumer.op}; use {item}'{root.latest}'", made, operand)

    def consume(self, name, holder, made, operand):
        root = holder.root
        if holder.version != root.version:
            return False  # `read` has said so
        if root.origin == "constant":
            self.complain(f"'{name}' is a constant and cannot be updated", made, operand)
            return False
        if not holder.whole:
            self.complain(f"'{name}' is a view of '{root.latest}'; only a whole value can be updated", made, operand)
            return False
        root.version += 1
        root.consumer = made
        return True

    def shares(self, a, b):
        a, b = self.holders.get(a), self.holders.get(b)
        return a is not None and b is not None and a.root is b.root

    def step_op(self, made):
        op, names, result = OPS[made.op], made.operands, made.result.name
        self.holders[result] = None
        if 0 <= op.updates_input < len(names):
            updated = names[op.updates_input]
            for k, name in enumerate(names):
                if k != op.updates_input and self.shares(name, updated):
                    self.complain(f"'{name}' is updated here and read as well", made, k)
                    self.holders[result] = self.fresh(result)
                    return
            holder = self.holders[updated]
            if self.consume(updated, holder, made, op.updates_input):
                holder.root.latest = result
                self.holders[result] = Holder(holder.root, holder.root.version)
                return
        elif (op.view or op.selects) and names:
            holder = self.holders[names[0]]
            self.holders[result] = Holder(holder.root, holder.version, False)
            return
        self.holders[result] = self.fresh(result)

    def step_const(self, made):
        self.holders[made.result.name] = self.fresh(made.result.name, "constant")
        if declares_object(made.result):
            name, type_ = made.result.name, made.result.type
            self.complain(f"'{name}' is a {type_}, which changes: an input, not a constant", made, None)

    def step_scope(self, made):
        pass

    def step_pack(self, made):
        self.tuples[made.result.name] = [self.holders[name] for name in made.operands]

    def step_item(self, made):
        holder = self.tuples[made.operands[0]][made.index]
        self.read(made.operands[0], holder, made, 0)
        self.holders[made.result.name] = holder
        if holder.version == holder.root.version and holder.whole:
            holder.root.latest = made.result.name

    def step_call(self, made):
        consumes, results = self.summaries[made.function]
        names, result = made.operands, made.result.name
        for k in sorted(consumes):
            for j, name in enumerate(names):
                if j != k and self.shares(name, names[k]):
                    self.complain(f"'{name}' shares its storage with '{names[k]}', which '{made.function}' updates",
                                  made, j)
            if self.consume(names[k], self.holders[names[k]], made, k):
                self.holders[names[k]].root.latest = result
        holders, made_there = [], {}  # by the callee's root: results of one share its storage
        for parameter, whole, root, is_only in results:
            if parameter is None:
                if root not in made_there:
                    made_there[root] = self.fresh(result, "constant" if root.origin == "constant" else "made")
                # A part of storage that nobody has otherwise counts as a whole.
                holders.append(Holder(made_there[root].root, 0, is_only or whole))
            else:
                argument = self.holders[names[parameter]]
                holders.append(Holder(argument.root, argument.root.version, argument.whole and whole))
        if len(holders) == 1:
            self.holders[result] = holders[0]
        else:
            self.tuples[result] = holders

    def step_repeat(self, made):
        consumes, results = self.summaries[made.function]
        carry = self.tuples[made.operands[0]]
        for holder in carry:
            self.read(made.operands[0], holder, made, 0)
        for k, holder in enumerate(carry):
            # The loop has its own storage: a value that cannot be overwritten is copied there, and so is one that the
            # loop carries twice.
            root = holder.root
            if root.is_object:
                for other in carry[:k]:
                    if other.root is root:
                        self.complain(f"'{made.operands[0]}' has one object twice", made, 0)
            elif k not in consumes or not holder.whole or root.origin == "constant" or root.consumer is made:
                continue
            self.consume(root.latest, holder, made, 0)
            root.latest = made.result.name
        for k in sorted(consumes):
            if k >= len(carry):
                operand = k - len(carry)
                is_branch = made.condition >= 0 and made.count == 1
                kind = "from outside of a branch" if is_branch else "that every repetition reads"
                self.complain(f"'{made.function}' updates a value {kind}; carry it", made,
                              operand if operand >= 2 else None)
        for parameter, *_ in results:
            if parameter is not None and parameter >= len(carry) + 2:
                extra = made.operands[parameter - len(carry)]
                if self.holders[extra].root.is_object:
                    self.complain(f"'{made.function}' carries '{extra}', an object that every repetition reads", made,
                                  parameter - len(carry))
        self.tuples[made.result.name] = [self.fresh(made.result.name, is_object=holder.root.is_object)
                                         for holder in carry]


def declares_object(value):
    return value.type is not None and is_linear_object(value.type.dtype)


def check_linearity(program, order, found):
    summaries = {}
    for function in order:
        if found.full:
            return
        summaries[function.name] = LinearityChecker(function, summaries, found).run()
