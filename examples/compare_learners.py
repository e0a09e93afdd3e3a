# %% [markdown]
# # Three learners on a problem of your own
#
# A crew keeps two of three pumps under observation. A pump runs well or badly, and drifts between the two states also
# while nobody looks. Jupyter and editors that know `# %%` run this file cell by cell; `python compare_learners.py` runs
# all cells.

# %%
import argparse

from matplotlib.figure import Figure

import restless_bandits as rb

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="compare-learners.png")
parser.add_argument("--horizon", type=int, default=10_000)
parser.add_argument("--runs", type=int, default=20)
given, _ = parser.parse_known_args()  # A notebook has arguments of its own.

# %% [markdown]
# ## The problem
# The probabilities to stay in the good and in the bad state, and the rewards of the two states.

# %%
problem = rb.Problem(
    [
        rb.Arm.two_state(stay_best=0.95, stay_worst=0.90, rewards=(1.0, 0.1), name="north"),
        rb.Arm.two_state(stay_best=0.80, stay_worst=0.70, rewards=(0.9, 0.2), name="south"),
        rb.Arm.two_state(stay_best=0.90, stay_worst=0.97, rewards=(1.0, 0.0), name="west"),
    ],
    plays=2,
    name="pumps",
)
best = rb.oracles.exact(problem)
print(f"the best long-run reward: {best.gain:.6f} a slot, {'certified' if best.certified else 'not certified'}")

# %% [markdown]
# ## The comparison
# Every learner plays the same worlds, so differences of regret have small standard errors.

# %%
learners = ["likelihood-ucb", "ts-9", "ucb1"]
result = rb.simulate(problem, learners, given.horizon, runs=given.runs, seed=1, checkpoints="log:16")
for row in result.summaries():
    print(f"{row['spec']:15} regret {row['regret_mean'][-1]:7.1f} ± {row['regret_stderr'][-1]:.1f}")

first, second = (result.regret()[result.learners.index(name), :, -1] for name in ("ucb1", "likelihood-ucb"))
difference = first - second
error = difference.std(ddof=1) / len(difference) ** 0.5
print(f"ucb1 loses {difference.mean():.1f} ± {error:.1f} more than likelihood-ucb")

# %% [markdown]
# ## The figure

# %%
with rb.plots.style():
    figure = Figure(figsize=(8, 4), layout="constrained")
    rb.plots.regret(result, ax=figure.subplots(), log=True).set_title("Three learners on three pumps")
    figure.savefig(given.out)
print(f"picture: {given.out}")
