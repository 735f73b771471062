"""LSTM, GRU and RNN as torch.export leaves them where nothing is decomposed."""

from ..importing import loops
from ..importing.shaping import shaped, sliced
from .node import op
from .shapes import permuted

_UNROLLED = 4  # steps up to which a loop is not worth its function


def _outer(n, x, batch_first):
    return permuted(n, x, [1, 0, 2]) if batch_first else x


def _state(n, value, place):
    part = sliced(n, value, 0, place, place + 1, 1)
    return n.b.reshape_to(part, value.shape[1:])


def _direction(n, x, weights, states, step, backwards):
    """(outputs of all steps, last states) of one direction of a layer; `step` makes states of products and states."""
    x = sliced(n, x, 0, -1, None, -1) if backwards else x
    w, r, bias, recurrent_bias, projection = weights
    options = {} if bias is None else {"bias": bias}
    products = shaped(n.b.linear(x, w, **options), (*x.shape[:2], w.shape[0]))
    recurrent = (r, recurrent_bias, projection)
    steps = n.known_size(x, 0)
    if steps <= _UNROLLED:
        made = []
        for i in range(steps):
            states = step(_state(n, products, i), states, recurrent)
            made.append(n.b.unsqueeze(states[0], 0))
        outputs = n.b.concat(made, 0)
    else:
        def body(carry, slices):
            after = step(slices[0], carry, recurrent)
            return after, [after[0]]
        states, (outputs,) = loops.scan(n.b, body, states, [products], steps)
    shaped(outputs, (steps, x.shape[1], states[0].shape[1]))
    return (sliced(n, outputs, 0, -1, None, -1) if backwards else outputs), states


def _parts(n, value, count):
    size = n.known_size(value, 1) // count
    return [sliced(n, value, 1, i * size, (i + 1) * size, 1) for i in range(count)]


def _product(n, h, recurrent, added=None):
    """The state's product, with its bias and what else is added."""
    w, bias, *_ = recurrent
    options = {name: one for name, one in (("bias", bias), ("residual", added)) if one is not None}
    return n.b.linear(h, w, **options)


def _lstm_step(n, product, states, recurrent):
    h, c = states
    gates = shaped(_product(n, h, recurrent, product), product.shape)
    i, f, g, o = _parts(n, gates, 4)
    c = shaped(n.b.sigmoid(f) * c + n.b.sigmoid(i) * n.b.tanh(g), c.shape)
    made = shaped(n.b.sigmoid(o) * n.b.tanh(c), c.shape)
    projection = recurrent[2]
    return [made if projection is None else shaped(n.b.linear(made, projection), h.shape), c]


def _gru_step(n, product, states, recurrent):
    [h] = states
    own = shaped(_product(n, h, recurrent), product.shape)
    (r, z, k), (own_r, own_z, own_k) = _parts(n, product, 3), _parts(n, own, 3)
    reset, update = n.b.sigmoid(r + own_r), n.b.sigmoid(z + own_z)
    new = n.b.tanh(k + reset * own_k)
    return [shaped((1.0 - update) * new + update * h, h.shape)]


def _plain_step(function):
    def step(n, product, states, recurrent):
        return [shaped(getattr(n.b, function)(_product(n, states[0], recurrent, product)), states[0].shape)]
    return step


def _layers(n, x, states, params, has_biases, num_layers, bidirectional, batch_first, step):
    """Outputs of the last layer, and the last states of every layer and direction, stacked."""
    x = _outer(n, x, batch_first)
    directions = 2 if bidirectional else 1
    plain, count = 4 if has_biases else 2, directions * num_layers
    each = plain + (step is _lstm_step and len(params) == (plain + 1) * count)  # with a projection of the state
    if len(params) != each * count:
        raise n.malformed(f"argument 'params': {len(params)} weights for {num_layers} layers")
    lasts = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            w, r, *others = params[place * each:(place + 1) * each]
            biases = others[:2] if has_biases else (None, None)
            weights = (w, r, *biases, others[-1] if each > plain else None)
            first = [_state(n, one, place) for one in states]
            made, last = _direction(n, x, weights, first, lambda *given: step(n, *given), direction == 1)
            outputs.append(made)
            lasts.append(last)
        x = outputs[0] if directions == 1 else \
            shaped(n.b.concat(outputs, 2), (*outputs[0].shape[:2], 2 * outputs[0].shape[2]))
    ends = [n.b.concat([n.b.unsqueeze(last[i], 0) for last in lasts], 0) for i in range(len(states))]
    return (_outer(n, x, batch_first), *ends)


def _check(n, input, dropout, train):
    if train and dropout:
        raise n.error("draws random numbers", "dropout")
    if input.rank != 3:
        raise n.error(f"{input!r} without a batch")


@op("lstm.input")
def lstm(n, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    _check(n, input, dropout, train)
    return _layers(n, input, hx, params, has_biases, num_layers, bidirectional, batch_first, _lstm_step)


@op("gru.input", "rnn_tanh.input", "rnn_relu.input")
def gru(n, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    _check(n, input, dropout, train)
    step = _gru_step if ".gru" in n.op else _plain_step("tanh" if "tanh" in n.op else "relu")
    return _layers(n, input, [hx], params, has_biases, num_layers, bidirectional, batch_first, step)


@op("lstm_cell.default")
def lstm_cell(n, input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    product = n.b.linear(input, w_ih) if b_ih is None else n.b.linear(input, w_ih, bias=b_ih)
    return _lstm_step(n, shaped(product, (input.shape[0], w_ih.shape[0])), hx, (w_hh, b_hh, None))


@op("gru_cell.default", "rnn_tanh_cell.default", "rnn_relu_cell.default")
def gru_cell(n, input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    product = n.b.linear(input, w_ih) if b_ih is None else n.b.linear(input, w_ih, bias=b_ih)
    step = _gru_step if ".gru" in n.op else _plain_step("tanh" if "tanh" in n.op else "relu")
    return step(n, shaped(product, (input.shape[0], w_ih.shape[0])), [hx], (w_hh, b_hh, None))[0]
