"""The hypothesis profiles: "ci" by default, "nightly" with HYPOTHESIS_PROFILE=nightly."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=40)
settings.register_profile("nightly", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
