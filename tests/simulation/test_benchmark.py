"""The benchmark: instances and their values, processes of entrants and their failures, submissions and their checks."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from restless_bandits import ProblemError
from restless_bandits.simulation.benchmark import instances, pages, running, submissions
from restless_bandits.simulation.benchmark.episodes import first_message, make_episode
from restless_bandits.simulation.benchmark.instances import TRACKS, Instance, Reference, instances_of, random_gain
from restless_bandits.simulation.benchmark.pages import write_page
from restless_bandits.simulation.benchmark.processes import TimeLimits
from restless_bandits.simulation.benchmark.running import run_track
from restless_bandits.simulation.benchmark.submissions import Entrant, Seeds, load_submission
from restless_bandits.simulation.benchmark.verifying import verify

QUICK = TimeLimits(answer=20.0, run=60.0)
GREEDY = """
    import json, sys
    for line in sys.stdin:
        message, answer = json.loads(line), {}
        if message["type"] == "start":
            plays = message["problem"]["plays"]
        elif message["type"] == "slot":
            order = sorted(range(len(message["states"])), key=lambda arm: message["states"][arm])
            answer = {"arms": order[:plays]}
        elif message["type"] == "end":
            break
        print(json.dumps(answer), flush=True)
"""
"""A program without this package, which pulls the arms of the lowest states."""


def small(name="small", slots=20, seeds=(1, 2)):
    given = {"builtin": "three-states", "arms": 10}
    about = {"source": "a test", "licence": "none", "seeds": seeds, "full_seeds": seeds, "given": given}
    return Instance("planning", name, slots=slots, stored=Reference(0.7, 1.2, "bound", "a test"), **about)


@pytest.fixture
def track(monkeypatch):
    """The planning track with two small instances."""
    several = (small("one"), small("two"))

    def listed(name):
        return several if name == "planning" else ()

    for module in (instances, running, pages, submissions):
        monkeypatch.setattr(module, "instances_of", listed)
    return several


@pytest.fixture
def program(tmp_path):
    def write(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return Entrant.of("planning", "program", f"{sys.executable} {path}")

    return write


def failing(change):
    """The greedy program with another answer in slot 3."""
    return GREEDY.replace(
        "        print(", f"        if message.get('slot') == 3:\n            {change}\n        print("
    )


@pytest.mark.parametrize("track_name", TRACKS)
def test_files_are_instances(track_name):
    for instance in instances_of(track_name):
        assert instance.source
        assert instance.licence
        assert set(instance.seeds) <= set(instance.full_seeds)
        problem = instance.problem(instance.seeds[0])
        if instance.stored is not None and track_name != "index":
            assert instance.stored.random == pytest.approx(random_gain(problem), rel=1e-9, abs=1e-12)
            assert instance.stored.random < instance.stored.best
        for row in instance.published:
            # No published reward is above the bound by more than its noise.
            assert row.reward <= instance.stored.best * 1.001


def test_the_bound_is_that_of_the_publication():
    (thousand,) = (one for one in instances_of("planning") if one.name == "three-states-1000")
    assert thousand.stored.best / 1000 == pytest.approx(0.1238001673, abs=1e-8)


def test_stored_bounds_are_those_of_the_oracles():
    for instance in instances_of("planning"):
        if instance.stored is not None and instance.stored.proof == "bound":
            assert instance.stored.best == pytest.approx(instances.compute_reference(instance, 1).best, rel=1e-9)


@pytest.mark.slow
def test_stored_optima_are_those_of_the_oracles():
    for name in TRACKS:
        for instance in instances_of(name):
            if instance.stored is not None and instance.stored.proof == "certified":
                exact = Instance(**{**vars(instance), "stored": None, "method": "exact"})
                assert instance.stored.best == pytest.approx(exact.reference(1).best, rel=1e-9)


def test_indices_of_the_track_are_right():
    """Indices of a second program, closed forms and published numbers, against those of this package."""
    for instance in instances_of("index"):
        if instance.stored is not None:
            found = instances.compute_reference(instance, 1)
            assert found.indexable == instance.stored.indexable
            if found.indexable:
                assert found.index == pytest.approx(instance.stored.index, rel=1e-7, abs=1e-7)


def test_random_play_has_a_closed_form(track):
    """The mean of a long random run lies within six standard errors: a false alarm once in 1e8 runs."""
    instance = small(slots=800)
    rng = np.random.default_rng(5)
    means = []
    for _ in range(8):
        episode = make_episode(instance, int(rng.integers(1 << 30)), False, (), instance.stored)
        message, answer = episode.start(), {}
        while message is not None:
            message = episode.after(answer)
            answer = {"arms": rng.permutation(10)[:4].tolist()}
        means.append(episode.reward)
    assert abs(np.mean(means) - random_gain(instance.problem(1))) < 6 * np.std(means, ddof=1) / np.sqrt(8)


def test_draws_do_not_depend_on_choices():
    """Uncontrolled arms take the same path whatever is pulled, and pulled arms of equal choice the same rewards."""
    given = {"builtin": "paper-1"}
    about = {"source": "", "licence": "", "seeds": (1,), "full_seeds": (1,), "given": given, "slots": 200}
    instance, seen = Instance("learning-pulled", "x", **about), []
    for other in (0, 1):
        episode = make_episode(instance, 1, False, (), Reference(0, 1, "", ""))
        message, found = episode.after({}), []
        while message is not None:
            arm = 0 if message["slot"] % 2 else other
            if "last" in message and message["slot"] % 2 == 0:
                found.append((message["last"]["states"], message["last"]["rewards"]))
            message = episode.after({"arms": [arm]})
        seen.append(found)
    assert seen[0] == seen[1]


def test_messages_hide_what_is_to_be_learned():
    for name in ("learning-pulled", "learning-observed", "logs"):
        for instance in instances_of(name):
            reference = Reference(0.0, 1.0, "", "")
            text = json.dumps(first_message(instance, make_episode(instance, 1, False, (), reference)))
            assert "transitions" not in text
            assert instance.name not in text


def test_a_track_is_played_verified_and_shown(track, program, tmp_path):
    out = tmp_path / "submissions" / "greedy.json"
    out.parent.mkdir()
    entrant = program(GREEDY)
    found = run_track("planning", entrant, out=out, time_limits=QUICK)
    assert [(row.instance, row.seed, row.error) for row in found.rows] == [
        (name, seed, "") for name in ("one", "two") for seed in (0, 1)
    ]
    assert found.score.low < found.score.mean < found.score.high
    assert str(tmp_path) not in out.read_text()
    loaded = load_submission(out)
    assert loaded.score == found.score
    done = verify(loaded, entrant, seed=1, time_limits=QUICK)
    assert (done.runs, done.agrees, done.same_code) == (1, True, True)
    assert write_page(out.parent, tmp_path / "benchmark.md") == 1
    page = (tmp_path / "benchmark.md").read_text()
    assert f"{found.score.mean:.4f}" in page
    assert (tmp_path / "benchmark-planning.svg").read_text().startswith("<svg")
    other = program(GREEDY.replace("state[", "states[").replace("order[:plays]", "order[-plays:]"), "other.py")
    assert not verify(loaded, Entrant(**{**vars(other), "name": entrant.name}), seed=1, time_limits=QUICK).agrees


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("answer = {'arms': [0, 1, 2, 3, 4]}", "slot 3: it named 5 arms, and 4 are pulled in each slot"),
        ("answer = {'arms': [0, 1, 2, 10]}", "slot 3: there is no arm 10; arms are 0 to 9"),
        ("answer = {'arms': [0, 1, 2, 2]}", "slot 3: it named an arm twice; an arm can be pulled once a slot"),
        ("answer = {'arms': 'all'}", "slot 3: arms is 'all'; give a list of 4 whole numbers"),
        ("answer = {'arms': [0, 1, 2, True]}", "slot 3: arms is [0, 1, 2, True]; give a list of 4 whole numbers"),
        ("answer = 7", "it answered 7; an answer is a JSON object"),
        ("print('no idea', flush=True); continue", "it answered 'no idea\\n', which is no JSON"),
        ("answer = {'decline': 'too many arms'}", "it declined: too many arms"),
        ("sys.exit('out of ideas')", "it ended with exit code 1: out of ideas"),
        ("import os, time; os.close(1); time.sleep(9)", "it closed its answers"),
    ],
)
def test_a_failing_entrant(track, program, tmp_path, change, sentence):
    """The other runs go on, and a failed run counts as random play."""
    found = run_track("planning", program(failing(change)), out=tmp_path / "s.json", jobs=4, time_limits=QUICK)
    assert [row.error for row in found.rows] == [sentence] * 4
    assert (found.score.mean, found.score.failures) == (0.0, 4)
    assert load_submission(tmp_path / "s.json").rows[0].error == sentence


def test_a_hanging_entrant(track, program, tmp_path):
    entrant = program(failing("import time; time.sleep(60)"))
    found = run_track("planning", entrant, out=tmp_path / "s.json", jobs=4, time_limits=TimeLimits(answer=0.7))
    assert {row.error for row in found.rows} == {"it gave no answer within 0.7 s"}
    slow = program(
        GREEDY.replace("    for line", "    import time\n    for line").replace("{}\n", "time.sleep(.2)or{}\n", 1)
    )
    found = run_track("planning", slow, out=tmp_path / "s.json", jobs=4, time_limits=TimeLimits(run=0.7))
    assert {row.error for row in found.rows} == {"its run took more than 0.7 s"}


def test_a_program_that_is_not_there(track, tmp_path):
    with pytest.raises(ProblemError, match="cannot start the program nowhere-to-be-found"):
        run_track("planning", Entrant.of("planning", "program", "nowhere-to-be-found"), out=tmp_path / "s.json")


def test_an_interrupted_run_goes_on(track, program, tmp_path, monkeypatch):
    entrant, out, played = program(GREEDY), tmp_path / "s.json", []
    whole = run_track("planning", entrant, out=out, time_limits=QUICK)
    play = running.play

    def interrupted(job, *given):
        if len(played) == 2:
            raise KeyboardInterrupt
        played.append(job)
        return play(job, *given)

    monkeypatch.setattr(running, "play", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_track("planning", entrant, out=out, time_limits=QUICK)
    kept = tmp_path / "s.json.partial"
    kept.write_text(kept.read_text() + '{"instance": "tw')  # half a line
    with pytest.raises(ProblemError, match=r"has runs of another track, entrant, code or seeds"):
        run_track("planning", program(GREEDY + "#", "other.py"), out=out)
    played.clear()
    again = run_track("planning", entrant, out=out, time_limits=QUICK)
    assert len(played) == 2
    assert [row.reward for row in again.rows] == [row.reward for row in whole.rows]
    assert not kept.exists()


@pytest.fixture
def submission(track, program, tmp_path):
    """A submission as data, and a function that writes changed data and reads them as a submission."""
    out = tmp_path / "s.json"
    run_track("planning", program(GREEDY), out=out, jobs=4, time_limits=QUICK)

    def changed(change):
        data = json.loads(out.read_text())
        change(data)
        path = tmp_path / "changed.json"
        path.write_text(json.dumps(data))
        return load_submission(path)

    return changed


def test_a_changed_submission(submission):
    def lines(change, sentence):
        with pytest.raises(ProblemError, match=sentence):
            submission(change)

    lines(lambda data: data["rows"].pop(1), "the run of one, seed 2, is missing")
    lines(lambda data: data["rows"].append(data["rows"][0]), "the run of one, seed 1, is no run of track planning")
    lines(lambda data: data["rows"][0].update(seed=7), "the run of one, seed 1, is missing")
    lines(lambda data: data["rows"][0].update(reward=1.2), "the numbers were changed")
    lines(lambda data: data["rows"][0].update(best=1.0), "one has the values 0.7 and 1 for random play and the best")
    lines(lambda data: data["score"].update(mean=0.99), "the score of the track is 0.99, and its rows give")
    lines(lambda data: data.update(seeds="mine"), "seeds is 'mine'; it must be public or held-out")
    lines(lambda data: data.update(track="chess"), "there is no track 'chess'")
    lines(lambda data: data.pop("rows"), "a field is missing")
    lines(lambda data: data["rows"][0].pop("cpu"), "is no row; it needs")
    lines(lambda data: data["rows"][0].update(reward="high"), "is no row; a number is missing")
    lines(lambda data: data.update(format=9), "is in format 9, not 1")
    lines(lambda data: data.update(entrant={}), "it needs a kind, a name")


def test_verification_finds_changed_rewards(submission, program):
    def consistent(data):
        for row in data["rows"]:
            row["reward"] += 0.01
        for one in (data["score"], *data["instances"].values()):
            one["mean"] += 0.02

    found = submission(consistent)
    done = verify(found, program(GREEDY), seed=3, time_limits=QUICK)
    assert not done.agrees
    assert "and the submission says" in done.differences[0]
    with pytest.raises(ProblemError, match="the submission's seeds are public; leave out --held-out"):
        verify(found, program(GREEDY), seeds=Seeds((4, 5), "mark"))
    with pytest.raises(ProblemError, match="and the entrant given is"):
        verify(found, program(GREEDY, "another.py"))


def test_held_out_seeds(track, program, tmp_path):
    path = tmp_path / "seeds.txt"
    path.write_text("123456789\n987654321\n")
    seeds, out = Seeds.from_file(path), tmp_path / "s.json"
    found = run_track("planning", program(GREEDY), seeds=seeds, out=out, jobs=4, time_limits=QUICK)
    assert found.seeds == f"held-out {seeds.mark}"
    assert "123456789" not in out.read_text()
    public = run_track("planning", program(GREEDY), out=tmp_path / "p.json", jobs=4, time_limits=QUICK)
    assert [row.reward for row in public.rows] != [row.reward for row in found.rows]
    assert verify(load_submission(out), program(GREEDY), seeds=seeds, time_limits=QUICK).agrees
    path.write_text("1\n")
    with pytest.raises(ProblemError, match="has 1, and one needs 2; add some"):
        run_track("planning", program(GREEDY), seeds=Seeds.from_file(path), out=out)
    path.write_text("secret")
    with pytest.raises(ProblemError, match="holds no seeds; write whole numbers"):
        Seeds.from_file(path)


def test_names_of_entrants():
    with pytest.raises(ProblemError, match="there is no policy 'lp-indx'"):
        Entrant.of("planning", "policy", "lp-indx")
    with pytest.raises(ProblemError, match="shows all parameters; leave out --reveal"):
        Entrant.of("planning", "policy", "random", ["problem"])
    with pytest.raises(ProblemError, match="cannot reveal 'future'"):
        Entrant.of("logs", "policy", "random", ["future"])
    with pytest.raises(ProblemError, match="the program is empty"):
        Entrant.of("planning", "program", " ")
    assert Entrant.of("learning-pulled", "policy", "whittle").revealed == ("problem",)
    assert Entrant.of("learning-pulled", "learner", "whittle").revealed == ("problem",)
    assert Entrant.of("learning-pulled", "learner", "posterior").revealed == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "word"),
    [
        ("index", "policy", "whittle"),
        ("planning", "policy", "lp-index"),
        ("learning-pulled", "learner", "posterior"),
        ("learning-observed", "policy", "lp-index"),
        ("logs", "policy", "counted"),
    ],
)
def test_entrants_of_the_package(name, kind, word, tmp_path, monkeypatch):
    chosen = instances_of(name)[:1]
    for module in (running, submissions):
        monkeypatch.setattr(module, "instances_of", lambda _: chosen)
    limits = TimeLimits(answer=300.0, run=600.0)
    found = run_track(name, Entrant.of(name, kind, word), out=tmp_path / "s.json", time_limits=limits)
    assert not [row.error for row in found.rows if row.error]
    assert found.score.mean > 0.5


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there are no signals of POSIX; run the tests on Linux")
def test_ctrl_c_keeps_finished_runs(tmp_path):
    command = [
        sys.executable,
        "-m",
        "restless_bandits",
        "benchmark",
        "run",
        "index",
        "--policy",
        "whittle",
        "--jobs",
        "1",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running_command:
        kept = tmp_path / "submission.json.partial"
        until = time.monotonic() + 120
        while time.monotonic() < until and (not kept.exists() or len(kept.read_text().splitlines()) < 3):
            time.sleep(0.05)
        running_command.send_signal(signal.SIGINT)
        _, said = running_command.communicate(timeout=60)
    assert running_command.returncode == 130
    assert "Traceback" not in said
    assert len(kept.read_text().splitlines()) >= 3
