"""Arms that react to pulls and are seen when pulled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits import oracles
from restless_bandits.oracles.evaluation import evaluate
from restless_bandits.oracles.exact import cost
from restless_bandits.oracles.whittle import gittins_index, whittle_index
from restless_bandits.processes.beliefs import table_of
from restless_bandits.processes.resting_pay import pays_nothing_at_rest, resting_pay, without_resting_pay
from tests.reference import reacting_gain, subsidised_advantage

ORACLES = ("exact", "whittle", "relaxation", "myopic", "best-arm", "auto")


def two_arms(setup_cost=0.0):
    """The problem with numbers in the literature of this package: certified with tables, and by value iteration."""
    one = rb.Arm([[0.9, 0.1], [0.4, 0.6]], [1, 0], active_transitions=[[0.3, 0.7], [0.1, 0.9]], setup_cost=setup_cost)
    two = rb.Arm([[0.8, 0.2], [0.3, 0.7]], [0.8, 0], active_transitions=[[0.5, 0.5], [0.2, 0.8]], setup_cost=setup_cost)
    return rb.Problem([one, two])


def collapsing(active, passive):
    return rb.Arm(passive, [0, 1], active_transitions=active, passive_rewards=[0, 1])


BAD = collapsing([[0.96, 0.04], [0.01, 0.99]], [[0.97, 0.03], [0.03, 0.97]])
HEALING = collapsing([[0.23, 0.77], [0.01, 0.99]], [[0.25, 0.75], [0.03, 0.97]])


@st.composite
def reacting_arms(draw, n_states=None, ends=(0.0, 1.0), memory=0.9):
    """Arms whose chains keep at most a share ``memory`` a slot, with pay at rest and a set-up cost or without."""
    n = n_states or draw(st.integers(2, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    passive, active = ((1 - memory) / n + memory * rng.dirichlet(np.ones(n), size=n) for _ in range(2))
    pays, rests = (np.round(rng.uniform(*ends, n), 3) for _ in range(2))
    given = {"passive_rewards": rests if draw(st.booleans()) else None, "setup_cost": draw(st.sampled_from([0.0, 0.2]))}
    initial = draw(st.sampled_from([None, 0, (rng.dirichlet(np.ones(n))).tolist()]))
    return rb.Arm(
        passive, pays, active_transitions=active, initial=initial, reward_law="bernoulli", reward_range=ends, **given
    )


def as_lists(arm):
    resting = np.zeros(arm.n_states) if arm.passive_rewards is None else arm.passive_rewards
    parts = arm.active_chain, arm.chain, arm.rewards, resting
    return (*(part.tolist() for part in parts), arm.setup_cost)


class TestExact:
    @pytest.mark.parametrize(("setup_cost", "gain"), [(0.0, 0.4477629286), (0.1, 0.3698452328)])
    def test_published_numbers_lie_in_a_narrow_bracket(self, setup_cost, gain):
        found = oracles.exact(two_arms(setup_cost))
        assert found.certified
        assert found.width < 1e-9
        assert found.gain == pytest.approx(gain, abs=1e-10)

    @given(st.data())
    def test_it_agrees_with_value_iteration_in_plain_python(self, data):
        first, second = (data.draw(reacting_arms(n_states=2, memory=0.3)) for _ in range(2))
        found = oracles.exact(rb.Problem([first, second]))
        low, high = reacting_gain([as_lists(first), as_lists(second)], longest=14)
        assert found.certified
        assert found.width < 1e-9
        # After fourteen slots 0.3^13 < 2e-7 of the last state is left.
        assert found.gain == pytest.approx(0.5 * (low + high), abs=1e-6)

    def test_two_and_three_states_agree_to_nine_digits(self):
        rng = np.random.default_rng(8)

        def arm(n, cost):
            passive, active = (0.6 / n + 0.4 * rng.dirichlet(np.ones(n), size=n) for _ in range(2))
            return rb.Arm(passive, rng.random(n), active_transitions=active, passive_rewards=rng.random(n) / 2,
                          setup_cost=cost)  # fmt: skip

        arms = [arm(2, 0.05), arm(3, 0.0)]
        found = oracles.exact(rb.Problem(arms))
        low, high = reacting_gain([as_lists(one) for one in arms], longest=16)
        assert found.width < 1e-9
        # Chains keep at most 0.4 of their memory a slot: 0.4^15 = 1e-6 of small differences.
        assert found.lower - 1e-8 < high
        assert low - 1e-8 < found.upper

    @pytest.mark.parametrize("ends", [(0.0, 1.0), (-2.0, 5.0)])
    def test_a_table_of_the_same_distributions_has_the_same_gain(self, ends):
        rng = np.random.default_rng(3)
        arms, tables = [], []
        for _ in range(2):
            passive, active = (0.3 / 2 + 0.7 * rng.dirichlet(np.ones(2), size=2) for _ in range(2))
            arm = rb.Arm(
                passive, rng.uniform(*ends, 2), active_transitions=active, reward_law="bernoulli", reward_range=ends
            )
            laws = arm.state_distributions(120)
            arms.append(arm)
            tables.append(rb.TableArm(laws[1:], arm.rewards, reward_law="bernoulli", reward_range=ends))
        ours, theirs = (oracles.exact(rb.Problem(some)) for some in (arms, tables))
        assert ours.gain == pytest.approx(theirs.gain, abs=1e-9)

    def test_arms_that_only_move_when_pulled(self):
        # Pulled for ever each earns its mean; the better share of time is known from the optimum over both.
        arms = [rb.Arm.rested([[0.5, 0.5], [0.2, 0.8]], [1, 0]), rb.Arm.rested([[0.1, 0.9], [0.3, 0.7]], [0.9, 0.1])]
        found = oracles.exact(rb.Problem(arms))
        assert found.certified
        assert found.lower <= max(2 / 7, 0.25 * 0.9 + 0.75 * 0.1) <= found.upper + 1e-9


class TestResting:
    @given(reacting_arms(ends=(-1.0, 2.0)))
    def test_the_equivalent_arm_earns_the_same_when_pulled_for_ever(self, arm):
        pay, plain = resting_pay(arm), pays_nothing_at_rest(arm)
        pulled = np.linalg.matrix_power(arm.active_chain, 4096)[0]
        assert pulled @ plain.rewards + pay.rate == pytest.approx(pulled @ arm.rewards, abs=1e-12)
        assert plain.passive_rewards is None

    def test_pay_that_depends_on_the_state_for_ever_is_refused(self):
        arm = rb.Arm.rested([[0.5, 0.5], [0.2, 0.8]], [1, 0], passive_rewards=[0.5, 0])
        with pytest.raises(rb.ProblemError, match="several recurrent classes"):
            oracles.exact(rb.Problem([arm, arm.named("other")]))

    def test_the_estimated_cost_is_that_of_the_equivalent_problem(self):
        problem = rb.Problem.builtin("cpap")
        # Solved in a fifth of a second: the sweeps depend on the pay at rest.
        assert cost(problem) == cost(without_resting_pay(problem).problem.normalized())
        assert cost(problem).seconds < 1

    def test_widths_are_shares_of_the_stated_range(self):
        """Arms that forget slowly have a pay at rest that widens the range of the equivalent rewards a hundredfold."""
        rng, arms = np.random.default_rng(1), []
        for n in (2, 3):
            passive = 0.98 * np.eye(n) + 0.02 * rng.dirichlet(np.ones(n), n)
            active = rng.dirichlet(np.ones(n), n)
            pays, rests = rng.random((2, n))
            arms.append(rb.Arm(passive, pays, active_transitions=active, passive_rewards=rests))
        problem = rb.Problem(arms)
        low, high = without_resting_pay(problem).problem.reward_range
        assert high - low > 100
        # Rounding alone is 1e-9 here.
        assert oracles.exact(problem).width < 2e-9
        loose = oracles.exact(problem, tolerance=1e-3)
        assert loose.certified
        assert loose.width <= 1e-3
        for found in (oracles.oracle(name)(problem) for name in ORACLES):
            assert found.certified == (found.upper - found.gain <= 1e-4)


class TestEveryOracle:
    @given(st.data())
    def test_brackets_contain_the_certified_optimum(self, data):
        problem = rb.Problem([data.draw(reacting_arms(n_states=2, ends=(-1.0, 2.0))) for _ in range(2)])
        exact = oracles.exact(problem)
        for name in ORACLES:
            found = oracles.oracle(name)(problem)
            assert found.lower <= exact.upper + 1e-9
            assert found.upper >= exact.lower - 1e-9
            if found.gain is not None:
                assert found.gain <= exact.upper + 1e-8

    @pytest.mark.parametrize("name", ["exact", "whittle", "relaxation"])
    def test_a_stored_policy_decides_as_before(self, name, tmp_path):
        policy = oracles.oracle(name)(two_arms(0.1)).policy
        policy.save(tmp_path / "policy.npz")
        again = rb.load_policy(tmp_path / "policy.npz")
        states = np.array([[s, k] for s in (-2, -1, 0, 1) for k in (-2, -1, 0, 1)])
        for slots in ([1, 2], [3, 1], [5, 9]):
            elapsed = np.broadcast_to(slots, states.shape)
            assert again.choose(states, elapsed).tolist() == policy.choose(states, elapsed).tolist()

    def test_the_best_arm_earns_what_the_others_are_paid_at_rest(self):
        arms = [BAD, HEALING]
        found = oracles.oracle("best-arm")(rb.Problem(arms))
        pulled, rested = (
            [float(np.linalg.matrix_power(chain, 20_000)[0] @ [0, 1]) for chain in chains]
            for chains in ([arm.active_chain for arm in arms], [arm.chain for arm in arms])
        )
        assert found.gain == pytest.approx(max(pulled[0] + rested[1], pulled[1] + rested[0]), abs=1e-10)

    def test_a_set_up_cost_makes_the_player_stay(self):
        arms = [rb.Arm([[0.7, 0.3], [0.3, 0.7]], [1, 0], setup_cost=cost) for cost in (0.9, 0.9)]
        found = oracles.exact(rb.Problem(arms))
        # Two like arms, and a change that costs more than it can gain: the policy never changes.
        assert found.gain == pytest.approx(0.5, abs=1e-9)
        assert evaluate(rb.Problem(arms), found.policy).gain == pytest.approx(0.5, abs=1e-9)

    @pytest.mark.parametrize("name", ["exact", "whittle", "relaxation", "best-arm"])
    def test_an_arm_of_one_state_that_pays_nothing_allows_no_pull(self, name):
        one = rb.Arm([[0.9, 0.1], [0.4, 0.6]], [1, 0], active_transitions=[[0.3, 0.7], [0.1, 0.9]],
                     passive_rewards=[0.6, 0.1], setup_cost=0.1)  # fmt: skip
        two = rb.Arm([[0.8, 0.2], [0.3, 0.7]], [0.8, 0], active_transitions=[[0.5, 0.5], [0.2, 0.8]],
                     passive_rewards=[0.5, 0])  # fmt: skip
        problem = rb.Problem([one, two, rb.Arm([[1]], [0])])
        # Pulls do not pay here: at rest the arms earn 0.8 · 0.6 + 0.2 · 0.1 and 0.6 · 0.5.
        assert oracles.oracle(name)(problem).gain == pytest.approx(0.8, abs=1e-9)
        assert oracles.exact(rb.Problem([one, two])).upper < 0.73

    @pytest.mark.parametrize("name", ["guha"])
    def test_oracles_of_one_paper_refuse_by_name(self, name):
        with pytest.raises(rb.ProblemError, match=f"the oracle {name} does not support"):
            oracles.oracle(name)(two_arms())


class TestIndex:
    def test_collapsing_patients(self):
        table = whittle_index(BAD, discount=0.95).table
        assert table[0, :3] == pytest.approx([0.1013333, 0.1060797, 0.1119035], abs=5e-8)
        assert table[1, :3] == pytest.approx([0.1766822, 0.1765225, 0.1763637], abs=5e-8)
        assert whittle_index(HEALING, discount=0.95).table == pytest.approx(0.02402, abs=5e-6)

    def test_gittins(self):
        arm = rb.Arm.rested([[1, 0], [0.5, 0.5]], [2, 1], reward_range=[0, 2], reward_law="bernoulli")
        assert gittins_index(arm, 0.5) == pytest.approx([2, 4 / 3], abs=1e-12)
        with pytest.raises(rb.ProblemError, match="no Gittins index"):
            gittins_index(BAD, 0.5)
        with pytest.raises(rb.ProblemError, match="strictly between 0 and 1"):
            gittins_index(arm, 1.0)

    @given(reacting_arms(n_states=2))
    def test_pulling_and_resting_are_equally_good_at_the_index(self, arm):
        found = whittle_index(arm, length=3, discount=0.99)
        plain = pays_nothing_at_rest(arm, 0.99)
        laws = table_of(plain, 40).distributions[: arm.n_states].transpose(1, 0, 2)
        for s, t in np.ndindex(2, 2) if found.indexable and not arm.setup_cost else ():
            advantage = subsidised_advantage(laws, plain.rewards, found.table[s, t], discount=0.99)
            assert abs(advantage[s, t]) < 1e-8

    @given(reacting_arms(n_states=2))
    def test_the_average_reward_is_the_limit_of_discounts(self, arm):
        ours, near = whittle_index(arm, length=3), whittle_index(arm, length=3, discount=1 - 1e-6)
        if ours.indexable and near.indexable:
            assert ours.table[:2] == pytest.approx(near.table[:2], abs=1e-4)

    def test_an_observed_arm_has_an_index_by_state(self):
        found = whittle_index(HEALING, observed="all", discount=0.95)
        chains, m = (HEALING.chain, HEALING.active_chain), found.table[:, 0]
        assert found.as_dict()["index"].shape == (2, 1)
        for state in range(2):
            values = np.zeros(2)
            for _ in range(2000):
                rest, pull = (HEALING.rewards + 0.95 * chain @ values for chain in chains)
                values = np.maximum(rest + m[state], pull)
            assert rest[state] + m[state] == pytest.approx(pull[state], abs=1e-9)
