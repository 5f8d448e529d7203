"""One loop: reproducible, keeps the best epoch, and leaves finite parameters behind when it fails."""

import math

import pytest
import torch
from torch import nn

from gwi.core.networks import mlp
from gwi.core.training import train

X = torch.linspace(-1, 1, 20, dtype=torch.float64)[:, None]
Y = torch.sin(3 * X[:, 0])


class Scalar(nn.Module):
    """One parameter that starts at 1, and one buffer that counts."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def loss(self, x, y):
        self.count += 1
        return self.w.square()


def one_network_run(order_seed, **settings):
    network = mlp(1, generator=torch.Generator().manual_seed(0)).double()

    def loss(x, y):
        return (network(x)[:, 0] - y).square().mean()

    record = train(
        network, loss, X, Y, num_epochs=40, batch_size=6, generator=torch.Generator().manual_seed(order_seed), **settings
    )
    return record, nn.utils.parameters_to_vector(network.parameters()).detach()


def test_the_same_generator_gives_the_same_parameters_to_the_last_bit():
    (first, a), (second, b), (other, c) = one_network_run(1), one_network_run(1), one_network_run(2)
    assert first == second
    assert torch.equal(a, b)
    assert first != other
    assert not torch.equal(a, c)


def test_a_generator_leaves_the_global_random_state_alone():
    module, before = Scalar(), torch.get_rng_state()
    train(module, module.loss, X, Y, num_epochs=2, batch_size=6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_loss_falls():
    record, _ = one_network_run(1, learning_rate=0.05)
    assert len(record.losses) == 40
    assert record.losses[-1] < 0.2 * record.losses[0]
    assert record.validation_losses == ()
    assert record.best_epoch == 39


def test_every_epoch_sees_every_row_once_with_its_target():
    module, seen = Scalar(), []

    def loss(x, y):
        assert torch.equal(y, torch.sin(3 * x[:, 0]).expand(2, -1))
        seen.append(x[:, 0])
        return module.w.square()

    train(module, loss, X, Y.expand(2, -1), num_epochs=2, batch_size=6)
    assert [len(rows) for rows in seen] == [6, 6, 6, 2] * 2
    for epoch in (seen[:4], seen[4:]):
        assert torch.equal(torch.cat(epoch).sort().values, X[:, 0])
    assert not torch.equal(torch.cat(seen[:4]), torch.cat(seen[4:]))


def test_the_recorded_loss_is_the_mean_over_rows():
    module, values = Scalar(), iter([1.0, 2.0, 3.0, 10.0])
    record = train(module, lambda x, y: 0 * module.w + next(values), X, Y, num_epochs=1, batch_size=6)
    assert record.losses[0] == pytest.approx((6 * (1 + 2 + 3) + 2 * 10) / 20)


def test_the_parameters_and_buffers_of_the_best_validation_epoch_are_kept():
    module, history = Scalar(), []
    validation = iter([5.0, 3.0, 4.0, 2.0, 6.0, 7.0])

    def validate():
        history.append((module.w.item(), module.count.item()))
        return torch.tensor(next(validation))

    record = train(module, module.loss, X, Y, num_epochs=6, validation_loss=validate)
    assert record.best_epoch == 3
    assert record.validation_losses == (5.0, 3.0, 4.0, 2.0, 6.0, 7.0)
    assert (module.w.item(), module.count.item()) == history[3]
    assert history[3] != history[5]


def test_parameters_that_the_module_does_not_hold_are_kept_with_it():
    module, outside = Scalar(), nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
    history, validation = [], iter([2.0, 1.0, 3.0, 4.0])

    def validate():
        history.append(outside.item())
        return torch.tensor(next(validation))

    record = train(module, lambda x, y: outside.square(), X, Y, num_epochs=4, parameters=[outside], validation_loss=validate)
    assert record.best_epoch == 1
    assert outside.item() == history[1]
    assert module.w.item() == 1.0


def test_only_parameters_that_ask_for_gradients_move():
    network = mlp(1, generator=torch.Generator().manual_seed(0)).double()
    network[0].requires_grad_(False)
    frozen = network[0].weight.clone()
    moving = network[2].weight.detach().clone()
    train(network, lambda x, y: (network(x)[:, 0] - y).square().mean(), X, Y, num_epochs=2)
    assert torch.equal(network[0].weight, frozen)
    assert not torch.equal(network[2].weight, moving)


@pytest.mark.parametrize(
    ("validation", "num_epochs", "best"),
    [
        ([3.0, 2.0, 2.5, 2.4, 2.3, 1.0], 5, 1),  # three epochs without a better one
        ([3.0, 3.0, 3.0, 3.0, 3.0, 3.0], 4, 0),  # as good is not better
        ([3.0, 4.0, 4.0, 2.0, 5.0, 5.0, 5.0, 5.0], 7, 3),  # a better one starts the count again
        ([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 6, 5),
    ],
)
def test_patience_stops_after_so_many_epochs_without_a_better_one(validation, num_epochs, best):
    module, values, epochs = Scalar(), iter(validation), []
    record = train(
        module,
        module.loss,
        X,
        Y,
        num_epochs=len(validation),
        validation_loss=lambda: torch.tensor(next(values)),
        patience=3,
        on_epoch=lambda epoch, _: epochs.append(epoch),
    )
    assert len(record.losses) == len(record.validation_losses) == num_epochs
    assert record.best_epoch == best
    assert epochs == list(range(num_epochs))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_raises_and_leaves_the_last_finite_epoch(bad):
    module, history = Scalar(), []

    def loss(x, y):
        return module.loss(x, y) * (bad if len(history) == 3 and len(x) < 6 else 1.0)

    with pytest.raises(FloatingPointError, match=r"became (nan|inf|-inf) in epoch 3.*learning rate"):
        train(module, loss, X, Y, num_epochs=9, batch_size=6, on_epoch=lambda *_: history.append(module.w.item()))
    assert len(history) == 3
    assert module.w.item() == history[-1]


def test_a_loss_that_is_not_finite_in_the_first_step_leaves_the_start():
    module = Scalar()
    with pytest.raises(FloatingPointError, match="epoch 0"):
        train(module, lambda x, y: module.w * math.nan, X, Y, num_epochs=3)
    assert module.w.item() == 1.0


def test_with_validation_a_failed_run_leaves_the_best_epoch():
    module, history, validation = Scalar(), [], iter([2.0, 1.0, 3.0, 4.0])

    def validate():
        history.append(module.w.item())
        return torch.tensor(next(validation))

    def loss(x, y):
        return module.w.square() * (math.nan if len(history) == 3 else 1.0)

    with pytest.raises(FloatingPointError, match="epoch 3"):
        train(module, loss, X, Y, num_epochs=9, validation_loss=validate)
    assert module.w.item() == history[1]


def test_an_infinite_slope_of_a_finite_loss_raises_and_leaves_finite_parameters():
    # √0 has a value and no slope: the step makes the parameter NaN, and in the last epoch no further loss would tell.
    module = Scalar()
    with pytest.raises(FloatingPointError, match="parameter became NaN or infinite in epoch 0"):
        train(module, lambda x, y: (module.w - 1).sqrt(), X, Y, num_epochs=1)
    assert module.w.item() == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_validation_loss_that_is_not_finite_raises(bad):
    module, values = Scalar(), iter([1.0, bad])
    with pytest.raises(FloatingPointError, match="validation loss became"):
        train(module, module.loss, X, Y, num_epochs=3, validation_loss=lambda: torch.tensor(next(values)))
    assert math.isfinite(module.w.item())
    assert module.count.item() == 1


def test_nothing_to_train_is_an_error():
    with pytest.raises(ValueError, match="Nothing to train"):
        train(Scalar().requires_grad_(False), lambda x, y: torch.zeros(()), X, Y, num_epochs=1)
    module = Scalar()
    with pytest.raises(ValueError, match="Nothing to train"):
        train(module, module.loss, X, Y, num_epochs=1, parameters=[])
