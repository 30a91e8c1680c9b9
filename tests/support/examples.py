"""How hypothesis looks for counterexamples here."""

from hypothesis import settings

# The same examples every time, and no clock: times of single examples say nothing on shared
# machines.
EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)
