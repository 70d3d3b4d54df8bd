import signal

import pytest

from antiphon.train.loop import Interruption


def test_ctrl_c_that_python_could_not_raise_ends_training_after_the_batch():
    before = signal.getsignal(signal.SIGINT)
    interruption = Interruption()
    interruption.on_fit_start(None, None)
    interruption.on_train_batch_end()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interruption.on_train_batch_end()
    interruption.teardown(None, None, "fit")
    assert signal.getsignal(signal.SIGINT) is before
