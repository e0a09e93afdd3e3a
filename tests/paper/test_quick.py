"""The quick form: it confirms a stored full reproduction, and tells what differs."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

import restless_bandits as rb
from restless_bandits.paper.experiments import quick, reproduce, reproduction
from restless_bandits.paper.experiments.agreement import (
    DIFFERENT,
    EQUAL,
    FEW,
    LEVEL,
    NEW,
    SIMILAR,
    Check,
    agreement,
    least_p,
    rank_test,
    same_values,
    settled,
)
from restless_bandits.paper.experiments.figures import Line
from restless_bandits.paper.experiments.reproduction import restamp, with_sample
from restless_bandits.paper.experiments.stored import RESULTS, RUNS, STAMP, StoredResults
from tests.paper import small as small_command
from tests.paper.small import STORED_RUNS, small_design

ITEMS = ["figure-a", "table-1", "inside", "theory"]
TS_9 = ("figure-a", "fair", "TS-9")


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The folder of a small full reproduction, and its results in the stored form."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduction, "design", small_design)
        folder = tmp_path_factory.mktemp("full") / "out"
        reproduce(ITEMS, out=folder, engine="threads", jobs=1)
        # The sample is made for all items of a design; this one has a single figure.
        patch.setattr(reproduction, "design", lambda *_, quick: small_design(["figure-a"], quick=quick))
        return folder, with_sample(folder, jobs=1)


@pytest.fixture(scope="module")
def confirmed(full, tmp_path_factory):
    """The folder of a quick form of all items, and what it found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduction, "design", small_design)
        patch.setattr(reproduction, "stored_results", lambda: full[1])
        folder = tmp_path_factory.mktemp("quick") / "out"
        return folder, reproduce(ITEMS, quick=True, out=folder, engine="threads", jobs=1)


@pytest.fixture
def run(full, monkeypatch, tmp_path):
    """Plays the quick form against stored results; by default against those of the full reproduction."""
    monkeypatch.setattr(reproduction, "design", small_design)

    def play(items=("figure-a",), stored=full[1], **options):
        monkeypatch.setattr(reproduction, "stored_results", lambda: stored)
        return reproduce(items, quick=True, **{"out": tmp_path / "out", "engine": "threads", "jobs": 1} | options)

    return play


def with_regret(stored, change, key=TS_9):
    """Stored results in which the regret of one line is another."""
    sample = stored.samples[key]
    regret = change(sample.regret.copy())
    changed = dataclasses.replace(sample, regret=regret, spread=regret)
    return dataclasses.replace(stored, samples={**stored.samples, key: changed})


def check_of(found, key=TS_9):
    (check,) = [one for one in found.confirmation.checks if (one.item, one.protocol, one.label) == key]
    return check


class TestEqualRuns:
    def test_every_run_is_equal(self, confirmed):
        confirmation = confirmed[1].confirmation
        # Two lines of three and of two runs, four posterior weights, one stretch.
        assert confirmation.counts("runs") == (2 * 3 + 2 * 2 + 4 + 1, 15)
        equal, computed = confirmation.counts("values")
        assert equal == computed > 15
        assert all(one.outcome == EQUAL for one in confirmation.checks if one.what != "ratios")
        assert "other code" not in confirmation.compared

    def test_verdicts_are_those_of_the_full_results(self, full, confirmed):
        stored = {(one["id"], one["protocol"]): one for one in full[1].results["claims"]}
        answer = confirmed[1].as_dict()
        assert {(one["id"], one["protocol"]) for one in answer["claims"]} == set(stored)
        for one in answer["claims"]:
            assert {key: value for key, value in one.items() if key != "agreement"} == stored[
                one["id"], one["protocol"]
            ]
        agreements = {one["id"]: one["agreement"] for one in answer["claims"] if one["agreement"]}
        assert agreements["ts9-best-constructed"] == {"outcome": "agrees", "said": "agrees here: 4 of 4 runs equal"}
        assert agreements["ts9-finds-truth"]["said"] == "agrees here: 4 of 4 runs equal"
        assert agreements["event"]["outcome"] == "agrees"
        assert "lowest-radio" not in agreements

    def test_figures_are_those_of_the_full_results(self, full, confirmed):
        for here, there in zip(confirmed[1].as_dict()["figures"], full[1].results["figures"], strict=True):
            for line, stored in zip(here["lines"], there["lines"], strict=True):
                assert {key: line[key] for key in stored} == stored
                assert line["played"]["equal"] == len(line["played"]["regret"]) > 1

    def test_the_report_says_where_verdicts_come_from(self, full, confirmed):
        page = (confirmed[0] / "report.html").read_text(encoding="utf-8")
        for said in (full[1].stamp.date, full[1].stamp.code, "What this machine confirms", "15 of 15 runs equal"):
            assert said in page
        # Of each line in each of three panels.
        assert page.count('class="trace runs') == 2 * 3
        figures = {path.name for path in (confirmed[0] / "figures").iterdir()}
        assert {"figure-a.png", "figure-a.svg", "raster.png", "estimates.png", "table-1.png"} <= figures
        assert json.loads((confirmed[0] / "results.json").read_text(encoding="utf-8"))["confirmation"]["level"] == LEVEL

    def test_a_second_time_plays_nothing(self, confirmed, run, monkeypatch):
        class NoPool:
            width = 1

            def submit(self, cell, numbers):
                pytest.fail(f"{cell.label} is played again")

        monkeypatch.setattr(reproduction, "open_pool", lambda *_, **__: nullcontext(NoPool()))
        before = (confirmed[0] / "figures" / "figure-a.svg").read_bytes()
        again = run(out=confirmed[0])
        assert again.confirmation.counts("runs") == (10, 10)
        assert (confirmed[0] / "figures" / "figure-a.svg").read_bytes() == before


class TestOtherRuns:
    def test_a_changed_stored_run_is_told(self, full, run):
        def tamper(regret):
            regret[0, -1] += 1e-9
            return regret

        found = run(stored=with_regret(full[1], tamper))
        check = check_of(found)
        # The line is played on for a test, and one run of all differs.
        assert (check.played, check.equal, check.outcome) == (10, 9, SIMILAR)
        assert "other code or another processor: TS-9" in found.confirmation.compared
        assert "other code" in check.text
        (claim,) = [one for one in found.verdicts if (one.claim.id, one.protocol) == ("ts9-best-constructed", "fair")]
        assert claim.agreement.outcome == "agrees"
        assert "no difference found" in claim.agreement.text
        assert check_of(found, ("figure-a", "published", "TS-9")).outcome == EQUAL

    def test_other_code_with_equal_runs_agrees(self, full, run, monkeypatch, tmp_path):
        monkeypatch.setattr(quick, "fingerprint", lambda: "feedfacefeedface")
        found = run()
        assert all(one.outcome == EQUAL for one in found.confirmation.checks)
        assert "other code" not in found.confirmation.compared
        page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
        assert "feedfacefeedface" in page
        assert full[1].stamp.code in page

    def test_worse_runs_are_found(self, full, run):
        found = run(stored=with_regret(full[1], lambda regret: regret * 3 + 500))
        check = check_of(found)
        assert (check.equal, check.outcome) == (0, DIFFERENT)
        assert check.p < LEVEL
        claims = {(one.claim.id, one.protocol): one.agreement for one in found.verdicts if one.agreement}
        assert claims["ts9-best-constructed", "fair"].outcome == "differs"
        assert "TS-9 on figure-a (fair)" in claims["ts9-best-constructed", "fair"].text
        assert claims["ts9-best-constructed", "published"].outcome == "agrees"

    def test_another_seed_is_compared_by_ranks(self, run):
        found = run(seed=5)
        runs = [one for one in found.confirmation.checks if one.what == "runs"]
        assert all((one.equal, one.sizes) == (0, (10, STORED_RUNS)) for one in runs)
        assert all(one.outcome == SIMILAR for one in runs)

    def test_few_runs_decide_nothing(self, full, run, monkeypatch):
        short = dict(full[1].samples)
        sample = short[TS_9]
        short[TS_9] = dataclasses.replace(sample, regret=sample.regret[:4] + 1, spread=sample.spread[:4] + 1)
        found = run(stored=dataclasses.replace(full[1], samples=short))
        assert check_of(found).outcome == FEW
        (claim,) = [one for one in found.verdicts if (one.claim.id, one.protocol) == ("ts9-best-constructed", "fair")]
        assert claim.agreement.outcome == "open"
        assert claim.outcome == "holds"

    def test_a_line_that_is_not_stored(self, run, monkeypatch):
        def with_another(wanted=(), *, quick=False):
            plan = small_design(wanted, quick=quick)
            fair = plan.protocol("fair")
            longer = dataclasses.replace(fair, lines=(*fair.lines, Line("UCB1", "ucb1")))
            protocols = (plan.protocols[0], longer)
            items = tuple(dataclasses.replace(one, protocols=protocols) for one in plan.items)
            return dataclasses.replace(plan, protocols=protocols, items=items)

        monkeypatch.setattr(reproduction, "design", with_another)
        found = run()
        assert check_of(found, ("figure-a", "fair", "UCB1")).outcome == NEW
        fair = found.as_dict()["figures"][1]["lines"]
        assert [(line["learner"], line["stored"]) for line in fair][-1] == ("UCB1", False)
        assert found.confirmation.counts("runs") == (10, 10)

    def test_a_line_that_takes_long_is_drawn_as_stored(self, run, monkeypatch, tmp_path):
        def without(wanted=(), *, quick=False):
            plan = small_design(wanted, quick=quick)
            protocols = tuple(
                dataclasses.replace(
                    one,
                    lines=tuple(
                        dataclasses.replace(line, quick_arms=(1, 9)[n == 0]) for n, line in enumerate(one.lines)
                    ),
                )
                for one in plan.protocols
            )
            items = tuple(dataclasses.replace(one, protocols=protocols) for one in plan.items)
            return dataclasses.replace(plan, protocols=protocols, items=items)

        monkeypatch.setattr(reproduction, "design", without)
        found = run()
        assert check_of(found).text == "drawn as stored"
        page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
        assert "TS-9 (stored)" in page
        assert "Restless-UCB (stored)" not in page


class TestStatistics:
    """Whole reports of 85 lines in which nothing differs, and lines that do differ."""

    @pytest.fixture(autouse=True)
    def each_rank_sum_once(self, monkeypatch):
        """Exact p-values depend on the sizes and the rank sum alone, and SciPy takes long for each."""
        known = {}

        def once(here, there, method):
            key = len(here), len(there), here.sum()
            if key not in known:
                known[key] = mannwhitneyu(here, there, method=method)
            return known[key]

        monkeypatch.setattr("scipy.stats.mannwhitneyu", once)

    @staticmethod
    def checks(draw, lines, rng, here=10, there=20):
        return settled(
            Check(
                "a",
                "fair",
                str(n),
                "runs",
                here,
                0,
                SIMILAR,
                1000,
                rank_test(draw(rng, here), draw(rng, there)),
                (here, there),
            )
            for n in range(lines)
        )

    @pytest.mark.parametrize("distribution", ["normal", "locking", "ties"])
    def test_false_alarms(self, distribution):
        draws = {
            "normal": lambda rng, n: rng.standard_normal(n),
            "locking": lambda rng, n: rng.standard_normal(n) + 50 * (rng.random(n) < 0.1),
            "ties": lambda rng, n: rng.integers(0, 2, n).astype(float),
        }
        rng = np.random.default_rng([1, *distribution.encode()])
        reports = [self.checks(draws[distribution], 85, rng) for _ in range(300)]
        alarms = sum(any(one.outcome == DIFFERENT for one in report) for report in reports)
        # Expected are at most 0.3 of 300; more than 4 have a probability of 1.6e-5.
        assert alarms <= 4
        assert {one.outcome for report in reports for one in report} <= {SIMILAR, DIFFERENT}

    def test_single_tests_are_exact(self):
        """With ties and without: 4000 tests at a level of 0.05; a share over 0.065 has a probability of 1e-5."""
        rng = np.random.default_rng(2)
        for draw in (lambda n: rng.integers(0, 2, n).astype(float), lambda n: rng.lognormal(size=n)):
            found = [rank_test(draw(6), draw(12)) <= 0.05 for _ in range(4000)]
            assert np.mean(found) <= 0.065

    def test_a_shift_is_found(self):
        """A shift by four standard deviations, among 84 lines without one: found in 99 of 100 reports or more."""
        rng = np.random.default_rng(3)
        found = []
        for _ in range(100):
            shifted = rank_test(rng.standard_normal(10) + 4, rng.standard_normal(20))
            least = Check("a", "fair", "x", "runs", 10, 0, SIMILAR, 1000, shifted, (10, 20))
            report = settled([least, *self.checks(lambda rng, n: rng.standard_normal(n), 84, rng)])
            found.append(report[0].outcome == DIFFERENT)
        assert sum(found) >= 97

    def test_least_p_is_reached(self):
        assert rank_test(np.arange(10.0), 20 + np.arange(20.0)) == pytest.approx(least_p(10, 20))
        assert rank_test(np.zeros(0), np.ones(4)) == 1.0

    def test_agreement_of_nothing(self):
        assert agreement([]).text == "not played here"
        assert agreement([Check("a", "fair", "x", "runs", 2, 0, NEW)]).outcome == "open"

    def test_values_are_equal_up_to_rounding(self):
        assert same_values({"a": [1.0, "x"]}, {"a": [1.0 + 1e-12, "x"]})
        assert not same_values({"a": [1.0]}, {"a": [1.0 + 1e-6]})
        assert not same_values({"a": [1.0]}, {"a": [1.0, 2.0]})
        assert not same_values({"a": 1}, {"b": 1})


class TestRestamp:
    @pytest.fixture
    def folder(self, full, tmp_path, monkeypatch):
        def quickly(wanted=(), *, quick=False):
            return small_design(tuple(one for one in wanted or ITEMS if one in ITEMS), quick=quick)

        monkeypatch.setattr(reproduction, "design", quickly)
        place = tmp_path / "stored"
        place.mkdir()
        old = dataclasses.replace(full[1], stamp=dataclasses.replace(full[1].stamp, code="0" * 16))
        old.write(place)
        return place

    def test_renewed_where_all_is_equal(self, folder, full, tmp_path):
        before = {name: (folder / name).read_bytes() for name in (RESULTS, RUNS)}
        found = restamp(out=tmp_path / "out", jobs=1, folder=folder)
        assert found.counts("runs") == (15, 15)
        stamp = StoredResults.read(folder).stamp
        assert stamp.code == full[1].stamp.code
        assert stamp.date == full[1].stamp.date
        assert stamp.restamped is not None
        assert {name: (folder / name).read_bytes() for name in before} == before

    def test_refused_where_a_run_differs(self, folder, full, tmp_path):
        def tamper(regret):
            regret[1, 0] += 1e-9
            return regret

        with_regret(full[1], tamper).write(folder)
        before = (folder / STAMP).read_bytes()
        with pytest.raises(
            rb.ProblemError, match=r"1 of \d+ lines differ .*TS-9 on figure-a \(fair\).*nothing is renewed"
        ):
            restamp(out=tmp_path / "out", jobs=1, folder=folder)
        assert (folder / STAMP).read_bytes() == before

    def test_refused_with_other_options(self, restless):
        code, out, err = restless("reproduce", "figure-a", "--restamp")
        assert (code, out) == (2, "")
        assert "--restamp replays a fixed sample" in err


class TestFiles:
    def test_what_is_written_is_read(self, full, tmp_path):
        full[1].write(tmp_path)
        again = StoredResults.read(tmp_path)
        assert again.results == json.loads(json.dumps(full[1].results))
        assert again.stamp == full[1].stamp
        for key, sample in full[1].samples.items():
            assert np.array_equal(again.samples[key].regret, sample.regret)
            assert np.array_equal(again.samples[key].spread, sample.spread)

    @pytest.mark.parametrize("name", [RESULTS, RUNS, STAMP])
    def test_damage_is_one_sentence(self, full, tmp_path, name):
        full[1].write(tmp_path)
        whole = (tmp_path / name).read_bytes()
        for broken in (b"", whole[: len(whole) // 2], b"[]", b"{}"):
            (tmp_path / name).write_bytes(broken)
            with pytest.raises(rb.ProblemError, match="damaged"):
                StoredResults.read(tmp_path)
        (tmp_path / name).unlink()
        with pytest.raises(rb.ProblemError, match="cannot read the stored results"):
            StoredResults.read(tmp_path)

    def test_a_figure_without_stored_results(self, run):
        with pytest.raises(rb.ProblemError, match="figure-b has no stored results"):
            run(["figure-b"])


@pytest.fixture
def command(full, tmp_path):
    """The quick form as a command, with the small design."""
    full[1].write(tmp_path)
    environment = os.environ | {"SMALL_STORED": str(tmp_path)}

    def words(*more):
        return {"args": [sys.executable, small_command.__file__, "reproduce", *more], "env": environment, "text": True}

    return words


def test_three_lines_at_the_end(restless, monkeypatch, tmp_path, full):
    monkeypatch.setattr(reproduction, "design", small_design)
    monkeypatch.setattr(reproduction, "stored_results", lambda: full[1])
    out = tmp_path / "out"
    words = ("reproduce", "figure-a", "--quick", "--jobs", "1", "--out", str(out))
    compared, found, report = restless(*words)[1].splitlines()
    assert compared.startswith("compared: 10 of 10 runs equal the stored ones")
    assert full[1].stamp.code in compared
    assert re.match(r"found: \d+ verdicts: .*; this machine agrees with \d+", found)
    assert report == f"report: {out / 'report.html'}"
    more = restless(*words, "--verbose")[1]
    assert "The paper's claims, and what was found" in more
    assert more.splitlines()[-3:] == [compared, found, report]


# Two processes that play for ten processor seconds; what was played is taken again in TestEqualRuns as well.
@pytest.mark.slow
def test_killed_it_goes_on(command, tmp_path):
    words = ("figure-a", "--quick", "--runs", "12", "--engine", "threads", "--json", "--out", str(tmp_path / "out"))
    with subprocess.Popen(**command(*words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.rglob("runs-*.npz")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    kept = {path: path.read_bytes() for path in tmp_path.rglob("runs-*.npz")}
    assert kept
    answer = json.loads(subprocess.run(**command(*words), capture_output=True, check=True).stdout)
    assert answer["confirmation"]["runs"] == {"equal": 48, "played": 48}
    assert all(path.read_bytes() == content for path, content in kept.items())
