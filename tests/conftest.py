import signal

import pytest
from hypothesis import HealthCheck, settings

# Compiled kernels make a first example slow, so no example has a deadline; the suite's length is kept by the counts.
settings.register_profile("suite", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.fixture(autouse=True, scope="session")
def interruptible():
    """Ctrl-C means Ctrl-C: a shell starts what it sends to the background with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
