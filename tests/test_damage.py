"""Whatever happens to a stored file, reading it gives one sentence or an answer: nothing else is raised or warned of.

Each format has a sample, which is damaged byte by byte and field by field. Damaged bytes of a format that carries
checksums are found out or change nothing. A field that was changed on purpose may make another file that is as good.
"""

import copy
import csv
import hashlib
import io
import json
import random
import tomllib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits.model.problem_files import problem_text

THREE = rb.Problem.random(3, [2, 3, 2], seed=4, plays=2, initial="unknown")
FROZEN = json.loads((Path(__file__).parent / "frozen" / "agents.json").read_text())
VALUES = [
    *(None, True, False, 0, 1, -1, 2, 7, 1 << 31, 1 << 62, 1 << 63, -(1 << 63), 10**30, 10**400),
    *(0.5, -0.5, 1.0, 1e-320, 1e308, -1e308, float("nan"), float("inf"), -float("inf")),
    *("", "x", "0", "1e400", "9" * 5000, "\x1b[31m\0\x07", "\ud800", "ts:support=" + "[" * 2000),
    *([], {}, [0], [None], [1, 1], [[0], [1]], list(range(30)), {"a": 1}),
]
"""What a field turns into."""


def use_problem(path):
    problem = rb.Problem.load(path)
    assert rb.Problem.from_toml(problem.to_toml()) == problem
    rb.Agent("round-robin", problem.task(10)).ask()
    return problem.assumptions


def use_agent(path):
    agent = rb.Agent.load(path)
    found = used(agent)
    agent.save(path)
    return found


def use_history(path):
    return used(rb.Agent.replay(path))


def used(agent):
    task, asked = agent.task, []
    for slot in range(8):
        arms = agent.ask()
        pulled = [arms] if task.plays == 1 else list(arms)
        assert len(set(pulled)) == task.plays
        assert all(0 <= arm < task.n_arms for arm in pulled)
        states = [slot % task.n_states[arm] for arm in pulled]
        rewards = [float(slot % 3 == 0)] * task.plays
        agent.tell(states[0] if task.plays == 1 else states, rewards[0] if task.plays == 1 else rewards)
        agent.skip(1 + slot)
        asked.append(arms)
    return asked, agent.record.to_dict()


def use_result(path):
    result = rb.SimulationResult.load(path)
    repr(result)
    result.to_pandas()
    return json.dumps(result.as_dict())


def use_policy(path):
    policy = rb.load_policy(path)
    assert policy.n_states is not None
    n = len(policy.n_states)
    asked = [policy([None] * n, [1] * n), policy([0] * n, list(range(1, n + 1))), policy([0] * n, [10**6] * n)]
    for arms in asked:
        chosen = [arms] if isinstance(arms, int) else list(arms)
        assert len(set(chosen)) == policy.plays
        assert all(0 <= arm < n for arm in chosen)
    return asked


def use_trace(path):
    trace = rb.data.read_trace(path)
    rb.data.fit(trace)
    return len(trace)


def use_store(path):
    """A block of a results folder; its runs are played again where it is no good, with a warning that says so."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is damaged; it is dropped and its runs are played again")
        found = played(path.parent.parent)
    return found.regret().tolist()


def use_manifest(path):
    return played(path.parent).regret().tolist()


def played(folder):
    return rb.simulate(rb.Problem.builtin("paper-1"), "round-robin", 20, runs=2, jobs=1, engine="threads", out=folder)


def toml_fields(content):
    return tomllib.loads(content.decode())


def toml_bytes(tree):
    head = {key: value for key, value in tree.items() if key not in ("arms", "fit")}
    fit, arms = tree.get("fit", {}), tree.get("arms", [])
    return problem_text(head, fit, arms if isinstance(arms, list) else [{"x": arms}]).encode()


def json_bytes(tree):
    return json.dumps(tree).encode()


def agent_fields(content):
    """Without the digest, as in files of earlier versions: then the fields must answer for themselves."""
    tree = json.loads(content)
    tree.pop("digest", None)
    return tree


def history_fields(content):
    events = [json.loads(line) for line in content.splitlines()]
    return [{key: value for key, value in event.items() if key not in ("seq", "mark")} for event in events]


def history_bytes(tree):
    """With numbers and marks that fit: then the events must answer for themselves."""
    lines, mark = [], ""
    for number, event in enumerate(tree, start=1):
        numbered = {"seq": number, **event}
        mark = hashlib.sha256((mark + json.dumps(numbered)).encode()).hexdigest()[:16]
        lines.append(json.dumps(numbered | {"mark": mark}) + "\n")
    return "".join(lines).encode()


def archive_fields(content):
    with np.load(io.BytesIO(content)) as archive:
        tree = {name: array.tolist() for name, array in archive.items()}
    if "label" in tree:
        tree["label"] = json.loads(tree["label"])
    return tree


def archive_bytes(tree):
    content = io.BytesIO()
    if "label" in tree:
        tree = tree | {"label": json.dumps(tree["label"])}
    np.savez(content, allow_pickle=False, **{str(key): np.array(value) for key, value in tree.items()})
    return content.getvalue()


def csv_fields(content):
    return list(csv.reader(io.StringIO(content.decode())))


def csv_bytes(tree):
    text = io.StringIO()
    csv.writer(text).writerows(row if isinstance(row, list) else [row] for row in tree)
    return text.getvalue().encode()


@dataclass(frozen=True)
class Format:
    write: Callable[[Path], Any]
    """Makes a sample; returns its path where that is another than it was given."""
    use: Callable[[Path], Any]
    """Reads it and does with it what people do; returns what was answered."""
    fields: Callable[[bytes], Any]
    bytes: Callable[[Any], bytes]
    checked: bool = True
    """Whether checksums show every damage of bytes."""


def agent_in(spec, problem=THREE):
    def write(path):
        learner = rb.learner(spec)
        agent = rb.Agent(learner, problem.task(1000, reveal=learner.needs), seed=3)
        for slot in range(30):
            arms = agent.ask()
            pulled = [arms] if problem.plays == 1 else list(arms)
            states = [(slot // 3) % problem.n_states[arm] for arm in pulled]
            rewards = [float(slot % 2)] * problem.plays
            agent.tell(states[0] if problem.plays == 1 else states, rewards[0] if problem.plays == 1 else rewards)
        agent.skip(700)
        agent.ask()
        agent.save(path)

    return Format(write, use_agent, agent_fields, json_bytes)


def eventful(path, **options):
    """An agent with a retired and an added arm, late and lost answers and another learner than at first."""
    agent = rb.Agent("likelihood-ucb", TWO.task(), seed=3, late=12, **options)
    for slot in range(1, 40):
        if slot == 10:
            agent.add_arm("new", 3)
        if slot == 20:
            agent.retire_arm("arm 1")
        if slot == 30:
            agent.learner = "posterior"
        agent.ask()
        if slot % 5 == 0:
            agent.tell(lost=True)
        elif slot % 3 == 0:
            agent.skip()
            agent.tell(slot % 2, 1.0, "arm 2", slot=slot)
        else:
            agent.tell(slot % 2, float(slot % 2))
    agent.ask()
    if not options:
        agent.save(path)


def frozen_agent(spec):
    return Format(
        lambda path: path.write_text(json.dumps(FROZEN[spec]["agent"])), use_agent, agent_fields, json_bytes, False
    )


def policy_of(oracle):
    return Format(lambda path: rb.oracles.policy(oracle, THREE).save(path), use_policy, archive_fields, archive_bytes)


def result_with(**options):
    def write(path):
        problem = rb.Problem.builtin("paper-1")
        rb.simulate(problem, ["round-robin", "ucb1"], 20, runs=2, checkpoints=3, **options).save(path)

    return Format(write, use_result, archive_fields, archive_bytes)


def stored(pattern):
    def write(path):
        played(path)
        (found,) = path.glob(pattern)
        return found

    return write


def trace_lines(path):
    states = np.random.default_rng(1).integers(0, 2, size=(60, 2))
    lines = [f"{slot},server-{arm},{states[slot, arm]},{slot % 2}" for slot in range(60) for arm in range(2)]
    path.write_text("\n".join(["time,arm,state,reward", *lines]) + "\n")


TWO = rb.Problem.builtin("paper-1")
REJECTED = rb.Problem(THREE.arms, plays=2, findings=rb.Findings(rejected="arm 1 remembers more than one step"))
FORMATS = {
    "problem": Format(REJECTED.save, use_problem, toml_fields, toml_bytes, checked=False),
    "agent of round-robin": agent_in("round-robin"),
    "agent of whittle": agent_in("whittle"),
    "agent of likelihood-ucb": agent_in("likelihood-ucb", TWO),
    "agent of rca": agent_in("rca", TWO),
    "agent of dsee": agent_in("dsee", TWO),
    "agent of restless-ucb": agent_in("restless-ucb:rewards=known,m=3", TWO),
    "eventful agent": Format(eventful, use_agent, agent_fields, json_bytes),
    "history": Format(
        lambda path: eventful(path, history=path), use_history, history_fields, history_bytes, checked=False
    ),
    "earlier agent of posterior": frozen_agent("posterior"),
    "earlier agent of rca": frozen_agent("rca"),
    "index policy": policy_of("whittle"),
    "joint policy": policy_of("exact"),
    "result": result_with(),
    "result with traces": result_with(trace=True),
    "stored runs": Format(stored("*/runs-*.npz"), use_store, archive_fields, archive_bytes),
    "manifest": Format(stored("manifest.json"), use_manifest, json.loads, json_bytes, checked=False),
    "trace": Format(trace_lines, use_trace, csv_fields, csv_bytes, checked=False),
}


@pytest.fixture(scope="module", params=FORMATS)
def sample(request, tmp_path_factory):
    """A format, the path of a sample, what it holds, and what is answered to it."""
    form = FORMATS[request.param]
    place = tmp_path_factory.mktemp("damage") / "sample"
    path = form.write(place)
    path = path if isinstance(path, Path) else place
    content = path.read_bytes()
    with warnings.catch_warnings(action="ignore"):
        right = form.use(path)
        # What writes changed fields writes unchanged ones so that they mean the same.
        path.write_bytes(form.bytes(form.fields(content)))
        assert form.use(path) == right
        return form, path, content, right


def answer(form, path, content):
    """What is answered to a file, None where it is refused; any warning but those that learners give is an error."""
    path.write_bytes(content)
    with warnings.catch_warnings(action="error"):
        warnings.filterwarnings("ignore", message=".*violates Assumption")
        warnings.filterwarnings("ignore", message=".*is decided otherwise today")
        try:
            return form.use(path)
        except rb.ProblemError as error:
            sentence = str(error)
    assert "\n" not in sentence
    return None


def damaged_bytes(content, rnd):
    content = bytearray(content)
    for _ in range(rnd.choice([1, 1, 2, 8])):
        place = rnd.randrange(len(content) + 1)
        length = rnd.choice([1, 1, 2, 30])
        new = bytes(rnd.randrange(256) for _ in range(length)) if rnd.random() < 0.5 else bytes(length)
        kind = rnd.choice(["replace", "replace", "flip", "insert", "delete", "cut"])
        if kind == "replace":
            content[place : place + length] = new
        elif kind == "flip" and place < len(content):
            content[place] ^= 1 << rnd.randrange(8)
        elif kind == "insert":
            content[place:place] = new
        elif kind == "delete":
            del content[place : place + length]
        elif kind == "cut":
            del content[place:]
    return bytes(content)


def places(tree, before=()):
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, value in inside for place in ((*before, key), *places(value, (*before, key)))]


def damage_field(tree, rnd):
    """Change, drop or add one field somewhere."""
    # By the first two keys first, so that the few fields are hit as often as the many numbers of one of them.
    known = places(tree)
    head = rnd.choice(sorted({place[:2] for place in known}, key=str))
    *way, last = rnd.choice([place for place in known if place[:2] == head])
    inside = tree
    for key in way:
        inside = inside[key]
    old, kind = inside[last], rnd.randrange(8)
    if kind == 0:
        del inside[last]
    elif kind == 1 and isinstance(old, int | float):
        inside[last] = old + rnd.choice([1, -1, 10, 0.001, -2 * old])
    elif kind == 2 and isinstance(old, list) and old:
        old.insert(rnd.randrange(len(old)), rnd.choice(old))
    elif kind == 3 and isinstance(old, list) and old:
        old.pop(rnd.randrange(len(old)))
    elif kind == 4 and isinstance(old, str) and old:
        at = rnd.randrange(len(old))
        inside[last] = old[:at] + rnd.choice("0x:,=[]\x1b\u2028") + old[at + 1 :]
    elif kind == 5 and isinstance(inside, dict):
        inside[f"{last}x"] = old
    else:
        inside[last] = copy.deepcopy(rnd.choice(VALUES))


@settings(max_examples=12)
@given(rnd=st.randoms(use_true_random=False))
def test_damaged_bytes(sample, rnd):
    form, path, content, right = sample
    given_answer = answer(form, path, damaged_bytes(content, rnd))
    assert not form.checked or given_answer in (None, right)


@settings(max_examples=20)
@given(rnd=st.randoms(use_true_random=False))
def test_damaged_fields(sample, rnd):
    form, path, content, _ = sample
    tree = form.fields(content)
    for _ in range(rnd.choice([1, 1, 1, 2])):
        if tree:
            damage_field(tree, rnd)
    try:
        written = form.bytes(tree)
    except (ValueError, TypeError, OverflowError, RecursionError, AttributeError):
        return  # Nothing that this format can hold.
    answer(form, path, written)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"{", b"PK\x03\x04", b"[" * 100_000, random.Random(1).randbytes(500)]
)
def test_what_is_nothing_of_the_kind(sample, content):
    form, path, _, _ = sample
    found = answer(form, path, content)
    assert found is None or form.use is use_store
