"""tenon.train, whose optimisers do what PyTorch's did in tests/train/data, and tenon.compiled."""

import collections
import dataclasses
import pathlib
import tempfile
import threading
import unittest

import numpy as np

import tenon
from tenon import ops, train

DATA = pathlib.Path(__file__).parents[3] / "tests/train/data/optimizers.safetensors"
RATE, STEPS = 0.05, 20
OPTIMIZERS = {"sgd": train.Sgd(), "momentum": train.Sgd(momentum=0.9, weight_decay=0.01),
              "nesterov": train.Sgd(momentum=0.9, nesterov=True), "adam": train.Adam(weight_decay=0.01),
              "adamw": train.adamw(0.1), "lion": train.Lion(weight_decay=0.1), "clipped": train.Sgd(),
              "rmsprop": train.RmsProp(weight_decay=0.01), "rmsprop_centered": train.RmsProp(momentum=0.8, centered=True),
              "adagrad": train.Adagrad(rate_decay=0.1, weight_decay=0.01, initial=0.2),
              "adadelta": train.Adadelta(weight_decay=0.01), "adamax": train.Adamax(weight_decay=0.01),
              "nadam": train.NAdam(weight_decay=0.01), "nadamw": train.NAdam(weight_decay=0.1, decoupled=True),
              "radam": train.RAdam(weight_decay=0.01), "radamw": train.RAdam(weight_decay=0.1, decoupled=True),
              "adafactor": train.Adafactor(weight_decay=0.1),
              "amsgrad": train.adamw(0.1, beta2=0.5, amsgrad=True),
              "asgd": train.Asgd(decay=0.1, begin=8, weight_decay=0.01), "rprop": train.Rprop(smallest=1e-3, largest=0.1),
              "lbfgs": train.Lbfgs(history=4),
              "muon": train.Groups((lambda path, p: p.ndim == 2, train.Muon()),
                                   (True, train.Sgd(momentum=0.9), 0.1))}
RATES = {"adadelta": 1.0, "adafactor": 0.1, "lbfgs": 0.5}


def loss_of(net, x, labels):
    hidden = ops.linear(x, net["up"]["weight"], net["up"]["bias"]).tanh()
    return ops.cross_entropy(ops.linear(hidden, net["down"]["weight"], net["down"]["bias"]), labels)


class Train(unittest.TestCase):
    def setUp(self):
        self.data = {name: np.asarray(one) for name, one in tenon.open(DATA).items()}
        self.net = {layer: {kind: self.data[f"start.{layer}.{kind}"].astype("f4") for kind in ("weight", "bias")}
                    for layer in ("up", "down")}
        self.batch = self.data["x"].astype("f4"), self.data["labels"].astype("i8")

    def check(self, name, losses, net):
        np.testing.assert_allclose(losses, self.data[f"{name.split('.')[0]}.losses"], rtol=1e-5, atol=1e-5, err_msg=name)
        for layer, held in net.items():
            for kind, one in held.items():
                np.testing.assert_allclose(one.numpy(), self.data[f"{name}.{layer}.{kind}"], rtol=1e-5, atol=1e-5)

    def start(self, name):
        """The network and the batch, of L-BFGS in f64: it enlarges what rounding leaves."""
        if name != "lbfgs":
            return self.net, self.batch
        return train.map_arrays(lambda one: one.astype("f8"), self.net), (self.data["x"], self.batch[1])

    def test_optimisers_are_pytorchs(self):
        evaluate = tenon.value_and_grad(loss_of)
        for name, optimizer in OPTIMIZERS.items():
            (net, batch), losses = self.start(name), []
            state = optimizer.start(net)
            for _ in range(STEPS):
                loss, gradients = evaluate(net, *batch)
                if name == "clipped":
                    norm = train.global_norm(gradients).item()
                    gradients, before = train.clip_norm(gradients, 0.1)
                    self.assertEqual(before.item(), norm)
                net, state = optimizer.update(net, gradients, state, RATES.get(name, RATE))
                losses.append(loss.item())
            self.check(name, losses, net)
            if name == "asgd":
                self.check("asgd.average", losses, state["average"])

    def test_a_step_as_one_program(self):
        for name, optimizer in OPTIMIZERS.items():
            @tenon.compiled
            def step(net, state, x, labels, rate):
                loss, gradients = tenon.value_and_grad(loss_of)(net, x, labels)
                if name == "clipped":
                    gradients, _ = train.clip_norm(gradients, 0.1)
                return (*optimizer.update(net, gradients, state, rate), loss)

            (net, batch), losses = self.start(name), []
            state = optimizer.start(net)
            for _ in range(STEPS):
                net, state, loss = step(net, state, *batch, RATES.get(name, RATE))
                losses.append(loss.item())
            self.check(name, losses, net)

    def test_donated_steps(self):
        optimizer = train.adamw(0.1)

        def step(net, state, x, labels):
            loss, gradients = tenon.value_and_grad(loss_of)(net, x, labels)
            return (*optimizer.update(net, gradients, state, RATE), loss)

        run = tenon.compiled(step, donate=(0, 1))
        net = train.map_arrays(lambda one: tenon.array(one.copy()), self.net)
        state, losses = optimizer.start(net), []
        for _ in range(STEPS):
            before = net
            net, state, loss = run(net, state, *self.batch)
            losses.append(loss.item())
        self.check("adamw", losses, net)
        with self.assertRaisesRegex(tenon.Error, "donated"):
            before["up"]["weight"].numpy()
        kept = {layer: {kind: one.copy() for kind, one in held.items()} for layer, held in self.net.items()}
        run(self.net, optimizer.start(self.net), *self.batch)  # numpy's arrays are the caller's
        for layer, held in kept.items():
            for kind, one in held.items():
                np.testing.assert_array_equal(self.net[layer][kind], one)

    def test_mixed_precision_and_accumulated(self):
        def loss(net, x, labels):
            return loss_of(train.cast(net, "f64"), x.cast("f64"), labels)

        value, gradients = tenon.value_and_grad(loss)(self.net, *self.batch)
        self.assertEqual((value.dtype, gradients["up"]["bias"].dtype), ("f64", "f32"))
        self.assertAlmostEqual(value.item(), self.data["sgd.losses"][0], places=6)
        doubled = train.accumulate(gradients, gradients)
        np.testing.assert_allclose(doubled["up"]["bias"].numpy(), 2 * gradients["up"]["bias"].numpy())

    def test_clipped_values_and_averages(self):
        g = {"a": np.array([-3.0, 0.5, 2.0], "f4")}
        np.testing.assert_array_equal(train.clip_value(g, 1)["a"].numpy(), [-1, 0.5, 1])
        np.testing.assert_allclose(train.averaged(g, {"a": np.ones(3, "f4")}, 0.75)["a"].numpy(), [-2, 0.625, 1.75])

    def test_groups(self):
        frozen = train.Groups((lambda path, _: path.startswith("down."), train.Sgd()))
        _, gradients = tenon.value_and_grad(loss_of)(self.net, *self.batch)
        state = frozen.start(self.net)
        net, _ = frozen.update(self.net, gradients, state, RATE)
        plain, _ = train.Sgd().update(self.net, gradients, train.Sgd().start(self.net), RATE)
        np.testing.assert_array_equal(net["up"]["weight"].numpy(), self.net["up"]["weight"])
        np.testing.assert_array_equal(net["down"]["weight"].numpy(), plain["down"]["weight"].numpy())
        both = train.Groups((lambda path, _: path.endswith("bias"), train.adamw(0.0)), (True, train.adamw(0.1)))
        state = both.start(self.net)
        same, state = both.update(self.net, gradients, state, (0.0, RATE))
        np.testing.assert_array_equal(same["up"]["bias"].numpy(), self.net["up"]["bias"])
        whole, _ = train.adamw(0.1).update(self.net, gradients, train.adamw(0.1).start(self.net), RATE)
        np.testing.assert_array_equal(same["up"]["weight"].numpy(), whole["up"]["weight"].numpy())
        self.assertEqual(sorted(state["0"]["mean"]), ["down.bias", "up.bias"])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "state.safetensors"
            train.save(path, state)
            again = train.load(path, state)
            np.testing.assert_array_equal(again["1"]["mean"]["up.weight"].numpy(), state["1"]["mean"]["up.weight"].numpy())
        with self.assertRaisesRegex(tenon.Error, "which is no matrix; Groups"):
            train.Muon().update(self.net, gradients, train.Muon().start(self.net), RATE)
        twice = {"a.b": np.ones(2, "f4"), "a": {"b": np.ones(2, "f4")}}
        with self.assertRaisesRegex(tenon.Error, "Groups: two arrays have the path 'a.b'"):
            frozen.update(twice, twice, {"0": {}}, RATE)
        with self.assertRaisesRegex(tenon.Error, "1 rates for 2 groups"):
            both.update(self.net, gradients, state, (RATE,))
        with self.assertRaisesRegex(tenon.Error, "the state of Groups is a dict of"):
            both.update(self.net, gradients, frozen.start(self.net), RATE)

    def test_rates_are_pytorchs(self):
        for name, rate in {
            "milestones": train.MilestoneDecay(0.5, 0.3, (3, 4, 17)), "steps": train.StepDecay(0.5, 0.3, 7),
            "exponential": train.ExponentialDecay(0.5, 0.9), "polynomial": train.PolynomialDecay(0.5, 0.0, 1.7, 20),
            "restarts": train.CosineRestarts(0.5, 0.01, 4, 2), "same_restarts": train.CosineRestarts(0.5, 0.01, 7),
            "one_cycle": train.OneCycle(0.5, 30),
            "one_cycle_lines": train.OneCycle(0.5, 30, 0.45, 10, 100, linear=True),
        }.items():
            want = self.data[f"rates.{name}"]
            np.testing.assert_allclose([rate.at(i) for i in range(len(want))], want, rtol=1e-11, err_msg=name)
        for name, options in {"plateau": {}, "plateau_most": {"largest": True, "threshold": 0.01, "relative": False},
                              "plateau_most_relative": {"largest": True, "cooldown": 1}}.items():
            rate = train.PlateauDecay(0.5, factor=0.4, patience=3, **{"cooldown": 2, "floor": 0.01} | options)
            got = [rate.see(one) for one in self.data["rates.plateau.measures"]]
            np.testing.assert_allclose(got, self.data[f"rates.{name}"], rtol=1e-12, err_msg=name)
        rate = train.Warmup(train.ExponentialDecay(1.0, 0.5), 3)
        np.testing.assert_allclose([rate.at(i) for i in range(5)], [0.25, 0.5, 0.75, 1.0, 0.5])

    def test_rates(self):
        rate = train.WarmupCosine(peak=0.1, floor=0.01, warmup=4, total=12)
        np.testing.assert_allclose([rate.at(i) for i in (0, 3, 4, 8, 12, 99)], [0.025, 0.1, 0.1, 0.055, 0.01, 0.01])
        rate = train.StepDecay(start=1.0, factor=0.5, every=3)
        np.testing.assert_allclose([rate.at(i) for i in (0, 2, 3, 8)], [1, 1, 0.5, 0.25])
        self.assertEqual(train.StepDecay(start=1.0, factor=0.5, every=0).at(2), 0.25)

    def test_checkpoints(self):
        pair = collections.namedtuple("Pair", "a b")
        saved = {"layers": [self.net["up"], self.net["down"]], "pair": pair(np.arange(3), tenon.array([1.5])),
                 "none": None}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "net.safetensors"
            train.save(path, saved)
            self.assertEqual(sorted(tenon.open(path).keys()),
                             ["layers.0.bias", "layers.0.weight", "layers.1.bias", "layers.1.weight", "pair.a",
                              "pair.b"])
            again = train.load(path, saved)
            self.assertIs(type(again["pair"]), pair)
            self.assertIsNone(again["none"])
            np.testing.assert_array_equal(again["layers"][1]["weight"].numpy(), self.net["down"]["weight"])
            with self.assertRaisesRegex(tenon.ArgumentError, r"'pair.a' is i64\[3\], the structure has f32\[3\]"):
                train.load(path, saved | {"pair": pair(np.zeros(3, "f4"), np.zeros(1, "f4"))})
            with self.assertRaisesRegex(tenon.InputError, "no tensor 'other'"):
                train.load(path, {"other": np.zeros(1)})
            with self.assertRaisesRegex(tenon.ArgumentError, "two arrays have the path 'a.b'"):
                train.save(path, {"a.b": np.zeros(1), "a": {"b": np.zeros(1)}})

    def test_arrays_of_other_sizes_are_refused(self):
        net, wide = {"w": {"a": np.ones(3, "f4")}}, {"w": {"a": np.ones((3, 3), "f4")}}
        one, adam = {"w": {"a": np.ones(1, "f4")}}, train.Adam()
        words = r"'w\.a' have the sizes \[3\] and \[3, 3\]"
        for call in (lambda: train.Sgd().update(net, wide, {}, RATE), lambda: train.accumulate(net, wide),
                     lambda: train.averaged(net, wide),
                     lambda: adam.update(net, net, adam.start(wide), RATE)):
            with self.assertRaisesRegex(tenon.Error, words):
                call()
        with self.assertRaisesRegex(tenon.Error, r"'w\.a' have the sizes \[3\] and \[1\]"):
            adam.update(net, one, adam.start(net), RATE)
        with self.assertRaisesRegex(tenon.Error, r"'w\.a' have the sizes \[1\] and \[3\]"):
            adam.update(net, net, adam.start(one), RATE)
        with self.assertRaisesRegex(tenon.Error, "Adam takes one rate, got 2"):
            adam.update(net, net, adam.start(net), [RATE, RATE])

    def test_options_that_are_lists_and_matrices_without_elements(self):
        net = {"w": np.zeros((2, 0), "f4")}
        muon = train.Muon(coefficients=[3.4445, -4.775, 2.0315])
        after, _ = muon.update(net, net, muon.start(net), RATE)
        self.assertEqual(after["w"].shape, (2, 0))

    def test_no_momentum_is_kept_where_there_is_none(self):
        self.assertEqual(train.Sgd().start(self.net), {})
        self.assertEqual(list(train.Sgd(momentum=0.9).start(self.net)), ["momentum"])

    def test_norms_that_f32_does_not_hold(self):
        clipped, norm = train.clip_norm({"a": np.array([3e30, 4e30]), "b": np.zeros(1, "f4")}, 10)
        np.testing.assert_allclose(clipped["a"].numpy(), [6, 8], rtol=1e-12)
        self.assertEqual((norm.dtype, clipped["b"].dtype), ("f32", "f32"))
        self.assertAlmostEqual(norm.item() / 5e30, 1, 6)

    def test_squares_that_f16_does_not_hold(self):
        g = {"a": np.array([300, 400], "f2"), "b": np.array([1200], "f2")}
        self.assertEqual(train.global_norm(g).item(), 1300)
        self.assertAlmostEqual(train.clip_norm(g, 13)[0]["b"].item(), 12, delta=0.02)
        large, ones = {"w": np.array([[600, 800]], "f2")}, {"w": np.ones((1, 2), "f2")}
        muon = train.Muon(momentum=0.0, weight_decay=0.0, steps=0)
        moved, _ = muon.update(large, large, muon.start(large), 1.0)
        np.testing.assert_array_equal(moved["w"].numpy(), np.array([[599.4, 799.2]], "f2"))
        adafactor = train.Adafactor()
        moved, _ = adafactor.update(large, ones, adafactor.start(large), 1.0)
        np.testing.assert_allclose(moved["w"].numpy(), [[600 - 707.1, 800 - 707.1]], atol=1)
        for p in (large, {"w": large["w"][0]}):  # gradients whose squares overflow, too
            moved, state = adafactor.update(p, p, adafactor.start(p), 1.0)
            np.testing.assert_allclose(moved["w"].numpy(), p["w"] - 707.1, atol=1)
            moved, _ = adafactor.update(p, p, state, 1.0)
            self.assertTrue(np.isfinite(moved["w"].numpy()).all())

    def test_adams_first_step_is_the_rate(self):
        net, gradients = {"w": np.zeros(1, "f4")}, {"w": np.full(1, 2, "f4")}
        adam = train.Adam(beta2=0.99999)
        after, _ = adam.update(net, gradients, adam.start(net), 1.0)
        self.assertAlmostEqual(after["w"].item(), -1, delta=1e-6)

    def test_options_and_rates_that_no_step_has(self):
        for name, make in {"beta1=1.0": lambda: train.Adam(beta1=1.0), "eps=-1": lambda: train.RmsProp(eps=-1),
                           "momentum=-1": lambda: train.Sgd(momentum=-1), "rho=2": lambda: train.Adadelta(rho=2),
                           "nesterov=True needs": lambda: train.Sgd(nesterov=True),
                           "weight_decay=-0.1": lambda: train.adamw(-0.1)}.items():
            with self.assertRaisesRegex(tenon.Error, name):
                make()
        with self.assertRaises(TypeError):
            train.Sgd(0.01)  # a rate, as PyTorch's first argument
        x = {"w": np.ones(3)}
        with self.assertRaisesRegex(tenon.Error, r"the rate has the sizes \[3\]"):
            train.Sgd().update(x, x, {}, np.array([0.1, 0.2, 0.3]))

    def test_an_optimiser_is_an_argument_of_a_step(self):
        @tenon.compiled
        def step(optimizer, p, state, g, rate):
            return optimizer.update(p, g, state, rate)

        p, g = {"w": np.ones(3, "f4")}, {"w": np.full(3, 2, "f4")}
        for optimizer in (train.Adam(), train.Sgd(momentum=0.9), train.Groups((True, train.Lion()))):
            want, _ = optimizer.update(p, g, optimizer.start(p), 0.1)
            got, _ = step(optimizer, p, optimizer.start(p), g, 0.1)
            np.testing.assert_allclose(got["w"].numpy(), want["w"].numpy(), rtol=1e-6)

    def test_rates_of_f64(self):
        x, none = {"w": np.ones(3)}, {"w": np.zeros(3)}
        moved, _ = train.Sgd().update(x, x, {}, 0.1)
        np.testing.assert_array_equal(moved["w"].numpy(), np.full(3, 1 - 0.1))
        adamw = train.adamw(0.1)
        moved, _ = adamw.update(x, none, adamw.start(x), 0.1)
        np.testing.assert_allclose(moved["w"].numpy(), 1 - 0.1 * 0.1, rtol=1e-15)

    def test_structures_that_differ(self):
        state = train.Sgd().start(self.net)
        with self.assertRaisesRegex(TypeError, "update: gradients or state is"):
            train.Sgd().update(self.net, {"up": self.net["up"]}, state, RATE)
        for call, words in ((lambda: train.global_norm({}), "there is no array"),
                            (lambda: train.Sgd().update({}, {}, train.Sgd().start({}), RATE), "there is no array"),
                            (lambda: train.Adam().update(self.net, self.net, state, RATE),
                             r"state of Adam is a dict of \['mean', 'number', 'square'\]"),
                            (lambda: train.Sgd().update(self.net, state, self.net, RATE), "gradients, state, rate"),
                            (lambda: train.Sgd().update([1], [1], train.Sgd().start([1]), RATE), "a parameter is i64"),
                            (lambda: tenon.compiled(lambda x: x)(threading), "compiled: an object of type module"),
                            (lambda: tenon.value_and_grad(lambda x: x)("a", threading), "value_and_grad: an object")):
            with self.assertRaisesRegex(tenon.Error, words):
                call()


    def test_words_in_structures_and_arrays_of_numpy(self):
        @dataclasses.dataclass
        class Layer:
            w: object
            kind: str = "tanh"
            is_last: bool = False

        layer = Layer(np.ones((2, 3), "f4"))
        value, gradients = tenon.value_and_grad(lambda one, x: getattr(ops.linear(x, one.w), one.kind)().sum())(
            layer, np.ones((1, 3), "f4"))
        for optimizer in (train.Sgd(), train.adamw(), train.Lion()):
            after, _ = optimizer.update(layer, gradients, optimizer.start(layer), RATE)
            self.assertEqual((after.kind, after.is_last, after.w.shape), ("tanh", False, (2, 3)))
        clipped, _ = train.clip_norm(gradients, 0.01)
        self.assertAlmostEqual(train.global_norm(clipped).item(), 0.01, 5)
        self.assertEqual(repr(train.cast({"w": np.ones(3, "f4")}, "bf16")["w"].type), "bf16[3]")
        with tempfile.TemporaryDirectory() as folder:
            train.save(f"{folder}/layer.safetensors", after)
            read = train.load(f"{folder}/layer.safetensors", like=layer)
        self.assertEqual((read.kind, read.w.tolist()), ("tanh", after.w.tolist()))

    def test_what_the_loss_does_not_depend_on(self):
        net = {"frozen": {"w": np.ones((3, 3), "f4")}, "head": [np.ones((2, 3), "f4"), np.zeros(2, "f4")]}
        x = np.ones((1, 3), "f4")

        def loss(net, x):
            hidden = ops.linear(x, ops.stop_gradient(net["frozen"]["w"]))
            return ops.linear(hidden, net["head"][0]).sum()

        def outer(net, x, **options):
            return tenon.value_and_grad(loss, **options)(net, x)

        for call in (outer, tenon.compiled(outer)):
            with self.assertRaisesRegex(tenon.ArgumentError, r"'net\.frozen\.w' f32\[3, 3\].*allow_unused"):
                call(net, x)
            with self.assertRaisesRegex(tenon.ArgumentError, r"'net\.step' i64\[\] has no gradient"):
                call({**net, "step": 3}, x)
            value, gradients = call(net, x, allow_unused=True)
            self.assertEqual(value.item(), 18)
            self.assertEqual(gradients["frozen"]["w"].tolist(), np.zeros((3, 3)).tolist())
            self.assertEqual(gradients["head"][0].tolist(), np.full((2, 3), 3).tolist())
            self.assertEqual(gradients["head"][1].tolist(), [0, 0])
        second = tenon.grad(lambda x: tenon.grad(lambda x: abs(x).sum())(x).sum(), allow_unused=True)
        self.assertEqual(second(np.array([1, -2], "f4")).tolist(), [0, 0])
        with self.assertRaisesRegex(tenon.ArgumentError, "not a floating scalar"):
            tenon.grad(lambda x: x, allow_unused=True)(x)

    def test_checkpointed_blocks(self):
        random = np.random.default_rng(0)
        layers = [{name: (random.standard_normal((64, 64)) / 8).astype("f4") for name in ("up", "down")} for _ in range(8)]
        x = random.standard_normal((256, 64)).astype("f4")

        def block(layer, x):
            return x + ops.linear(ops.gelu(ops.linear(x, layer["up"])), layer["down"])

        def program(block):
            def loss(x, *weights):
                for up, down in zip(weights[::2], weights[1::2]):
                    x = block({"up": up, "down": down}, x)
                value = (x ** 2.0).mean()
                return value, *tenon.grad(value, list(weights))
            return tenon.Session(tenon.export(loss, "f32[256, 64]", *["f32[64, 64]"] * 16))

        weights = [one for layer in layers for one in (layer["up"], layer["down"])]
        kept, again = program(block), program(tenon.checkpointed(block))
        for a, b in zip(kept.forward(x, *weights), again.forward(x, *weights)):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
        bytes_of = [one.report(x, *weights)["slab_bytes"] for one in (kept, again)]
        self.assertLess(bytes_of[1], 0.7 * bytes_of[0])
        with self.assertRaisesRegex(ZeroDivisionError, "division"):  # the region ends
            tenon.checkpointed(lambda: 1 / 0)()
        with self.assertRaisesRegex(TypeError, "int is no function"):
            tenon.checkpointed(3)


class Compiled(unittest.TestCase):
    def test_structures_words_and_numbers(self):
        runs = []

        @dataclasses.dataclass
        class Point:
            x: object
            y: object

        @tenon.compiled
        def move(point, by, how, *, scale=None):
            runs.append(how)
            x = point.x + by if how == "right" else point.x - by
            return Point(x if scale is None else x * scale, {"y": [point.y]}), 7, how

        for by in (1.0, 2.0):  # another number is no other program
            made, number, how = move(Point(np.zeros(3, "f4"), 2), by, "right")
            np.testing.assert_array_equal(made.x.numpy(), [by] * 3)
            self.assertEqual((made.y["y"][0].item(), number.item(), how), (2, 7, "right"))
        self.assertEqual(runs, ["right"])
        made, _, how = move(Point(np.zeros(3, "f4"), 2), 1.0, "left", scale=3.0)
        np.testing.assert_array_equal(made.x.numpy(), [-3] * 3)
        self.assertEqual((runs, move.__name__), (["right", "left"], "move"))

    def test_threads(self):
        square = tenon.compiled(lambda x: ops.sort(x) * 2.0)
        evaluate = tenon.value_and_grad(lambda x: (ops.sort(x) ** 2.0).sum())
        failures = []

        def work(number):
            try:
                x = np.random.default_rng(number).standard_normal(20000).astype("f4")
                for _ in range(20):
                    np.testing.assert_array_equal(square(x).numpy(), np.sort(x) * 2)
                    np.testing.assert_allclose(evaluate(x)[1].numpy(), 2 * x, rtol=1e-6)
                    train.Sgd().update(x, x, train.Sgd().start(x), 0.1)
            except Exception as error:  # a thread's own would be lost
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.assertEqual(failures, [])

    def test_within_programs_and_gradients(self):
        square = tenon.compiled(lambda x: x * x)
        program = tenon.export(lambda x: square(x) + 1, "f32[N]")
        np.testing.assert_array_equal(tenon.Session(program).forward(np.ones(2, "f4"))[0].numpy(), [2, 2])
        value, found = tenon.value_and_grad(lambda x: square(x).sum())(np.array([1, 2], "f4"))
        self.assertEqual((value.item(), found.tolist()), (5, [2, 4]))
        noise = tenon.compiled(lambda seed: ops.random_normal(ops.fold_in(ops.random_key(0), seed), (4,)))
        self.assertNotEqual(noise(1).tolist(), noise(2).tolist())

    def test_calls_of_programs(self):
        random = np.random.default_rng(1)
        arrays = {"w": random.standard_normal((3, 4)).astype("f4"), "b": random.standard_normal(3).astype("f4")}

        def layer(x, w, b):
            return ops.linear(x, w, b).tanh()

        def model(x):
            graph = tenon._tenon._current_graph()
            return layer(x, *(graph.capture(name, one) for name, one in arrays.items()))

        program = tenon.export(model, x="f32[N, 4]")
        self.assertEqual(sorted(program.folded), ["b", "w"])
        x = random.standard_normal((5, 4)).astype("f4")
        # Its own arrays, weights of the caller's, and the same program twice.
        whole = tenon.compiled(lambda x: tenon.call(program, x) + tenon.call(program, x=x))
        np.testing.assert_array_equal(whole(x).numpy(), 2 * tenon.Session(program).forward(x)[0].numpy())
        w = 2 * arrays["w"]
        loss = tenon.value_and_grad(lambda p, x: (tenon.call(program, x, weights=p) ** 2.0).sum())
        same = tenon.value_and_grad(lambda p, x: (layer(x, p["w"], arrays["b"]) ** 2.0).sum())
        (value, found), (want, gradients) = loss({"w": w}, x), same({"w": w}, x)
        self.assertEqual(value.item(), want.item())
        np.testing.assert_array_equal(found["w"].numpy(), gradients["w"].numpy())
        # For inference, the program with the trained arrays.
        trained = tenon.Session(program.with_arrays({"w": w})).forward(x)[0].numpy()
        np.testing.assert_array_equal(trained, tenon.compiled(layer)(x, w, arrays["b"]).numpy())

        # A loop, and layers with weights of their own, whose arrays are bound later.
        doubled = tenon.export(lambda x: tenon.while_loop(lambda x: x.sum() < 30.0, lambda x: x * 2.0, x, limit=9), "f32[N]")
        value, found = tenon.value_and_grad(lambda x: tenon.call(doubled, x).sum())(np.ones(4, "f4"))
        self.assertEqual((value.item(), found.tolist()), (32, [8] * 4))

        def deep(x):
            layers = [{"w": tenon.build.weight(f"layers.{i}.w", "f32[4, 4]")} for i in range(3)]
            return tenon.repeat(layers, x, lambda layer, i, x: ops.linear(x, layer["w"]).tanh())

        program = tenon.export(deep, "f32[N, 4]")
        weights = {f"layers.{i}.w": random.standard_normal((4, 4)).astype("f4") for i in range(3)}
        value = tenon.compiled(lambda weights, x: tenon.call(program, x, weights=weights))(weights, x)
        np.testing.assert_array_equal(value.numpy(), tenon.Session(program, weights).forward(x)[0].numpy())

    def test_calls_of_programs_that_are_refused(self):
        program = tenon.export(lambda x: ops.linear(x, np.ones((3, 4), "f4")), x="f32[N, 4]")
        x = np.ones((2, 4), "f4")
        for call, says in ((lambda x: tenon.call(program), "0 inputs are given"),
                           (lambda x: tenon.call(program, x, x), "2 inputs are given"),
                           (lambda x: tenon.call(program, x, x=x), "'x' is given twice"),
                           (lambda x: tenon.call(program, y=x), "no input 'y'")):
            with self.assertRaisesRegex(TypeError, says):
                tenon.compiled(call)(x)
        with self.assertRaisesRegex(TypeError, "beside tensors"):
            tenon.call(program, x)
        with self.assertRaisesRegex(tenon.ArgumentError, "no constant 'w'"):
            tenon.compiled(lambda x: tenon.call(program, x, weights={"w": x}))(x)
        with self.assertRaisesRegex(tenon.InputError, "no array 'w'"):
            program.with_arrays({"w": x})
        with self.assertRaisesRegex(tenon.ArgumentError, r"is f32\[2, 4\], the program's is f32\[3, 4\]"):
            program.with_arrays({"captured0": x})
        # Weights that a session would not use.
        tenon.Session(program, {"captured0": np.ones((3, 4), "f4")})
        with self.assertRaisesRegex(tenon.ArgumentError, "'captured0' is an array of the program itself"):
            tenon.Session(program, {"captured0": np.zeros((3, 4), "f4")})

    def test_what_is_no_function_or_no_array(self):
        with self.assertRaisesRegex(TypeError, "int is no function"):
            tenon.compiled(3)
        with self.assertRaisesRegex(TypeError, "returns no array"):
            tenon.compiled(lambda x: None)(np.ones(2, "f4"))


if __name__ == "__main__":
    unittest.main()
