import torch

from antiphon.nn.recurrent import Dropout


def test_the_share_that_is_dropped_and_the_mean_are_as_asked_for():
    torch.manual_seed(0)
    numbers = Dropout(0.3)(torch.ones(1000, 1000))
    assert abs((numbers == 0).double().mean() - 77 / 256) < 0.002
    assert abs(numbers.double().mean() - 1) < 0.002


def test_every_byte_of_a_random_word_drops_equally_often():
    torch.manual_seed(0)
    shares = (Dropout(0.5)(torch.ones(20_000, 8)) == 0).double().mean(0)
    assert torch.allclose(shares, torch.full((8,), 0.5, dtype=torch.float64), atol=0.02)


def test_the_gradient_goes_through_what_was_kept():
    torch.manual_seed(0)
    numbers = torch.ones(50, requires_grad=True)
    kept = Dropout(0.5)(numbers)
    kept.sum().backward()
    assert torch.equal(numbers.grad, kept.detach())


def test_nothing_is_dropped_outside_training():
    numbers = torch.rand(7)
    assert torch.equal(Dropout(0.5).eval()(numbers), numbers)


def test_the_highest_probability_keeps_some_and_stays_finite():
    dropout = Dropout(0.999).train()
    torch.manual_seed(1)
    dropped = dropout(torch.ones(100_000))
    assert torch.isfinite(dropped).all()
    assert 0 < (dropped > 0).float().mean() < 0.01
