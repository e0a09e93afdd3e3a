from hypothesis import HealthCheck, settings

# Compiled kernels make a first example slow, so no example has a deadline; the suite's length is kept by the counts.
settings.register_profile("suite", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
