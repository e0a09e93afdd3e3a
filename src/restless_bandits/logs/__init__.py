"""Your own data: logged observations in, a problem with standard errors or a replay of learners out.

    trace = rb.data.read_trace("trace.csv", states=3)
    found = rb.data.fit(trace)                  # .problem .arms .notes .findings
    replayed = rb.data.replay(trace, ["likelihood-ucb", "ts-9", "whittle"])
    guessed = rb.data.evaluate_policy(trace, ["whittle", "best-arm"])   # where only the pulled arm was logged

``tables`` opens a log of any format, ``reading`` extracts columns of numbers by ``cells``, ``slots`` counts their
times, and ``traces`` makes a trace, each with errors for invalid data. ``fitting`` makes a problem of a trace,
``checks`` tests the model against the log, ``replaying`` plays learners against the log, and ``offpolicy`` estimates
the values of policies other than the logger's. docs/how-to/own-data.md is the guide. Modules ``observed_…`` are for
logs in which all arms were seen.
"""

from restless_bandits.logs.checks import Finding
from restless_bandits.logs.clocks import Clock
from restless_bandits.logs.distribution_checks import LawCheck
from restless_bandits.logs.fitting import ArmFit, Fit, fit
from restless_bandits.logs.observed_offpolicy import ObservedOffPolicy
from restless_bandits.logs.offpolicy import OffPolicy, evaluate_policy
from restless_bandits.logs.replaying import Replay, ReplayedLearner, replay
from restless_bandits.logs.report import report
from restless_bandits.logs.seasonal import SeasonFit, fit_season
from restless_bandits.logs.seasons import Season
from restless_bandits.logs.traces import Trace, read_trace, trace

__all__ = [
    "ArmFit",
    "Clock",
    "Finding",
    "Fit",
    "LawCheck",
    "ObservedOffPolicy",
    "OffPolicy",
    "Replay",
    "ReplayedLearner",
    "Season",
    "SeasonFit",
    "Trace",
    "evaluate_policy",
    "fit",
    "fit_season",
    "read_trace",
    "replay",
    "report",
    "trace",
]
