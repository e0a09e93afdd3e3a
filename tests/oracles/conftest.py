from functools import cache

import pytest

from restless_bandits import testing
from restless_bandits.oracles import bracket


@pytest.fixture(scope="module")
def known():
    """The optimum and the relaxation's bound, computed once for each problem and not once for each oracle."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((testing, "exact"), (bracket, "relax")):
            patch.setattr(module, name, cache(getattr(module, name)))
        yield
