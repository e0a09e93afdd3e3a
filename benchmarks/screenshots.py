"""The pictures of the live page and of the report in the documentation, taken in a real browser.

Run with ``python -m benchmarks.screenshots`` (about two minutes); pictures go to docs/images, or to a folder that is
given. It starts a service of its own with three agents, one of whose arms changes on the way.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import restless_bandits as rb
from benchmarks.browsing import browser, look, missing
from benchmarks.reproduction_page import REPORT
from restless_bandits.service.demo import DemoWorld

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"


@contextmanager
def served() -> Iterator[dict[str, Any]]:
    """Run a service with a demo, and tell where it is and its token."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["serve", "--store", f"{folder}/pictures.db", "--port", "0", "--json"]
        command = [sys.executable, "-m", "restless_bandits", *words, "--demo", "lms-suburban-l", "--speed", "30"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield json.loads(process.stdout.readline())
            finally:
                process.terminate()


def play(agent: Any, problem: rb.Problem, changed: rb.Problem, slots: int) -> None:
    """Play a world that becomes another one half-way; every answer is the client's."""
    rng = np.random.default_rng(3)
    worlds = DemoWorld(problem, rng), DemoWorld(changed, rng)
    for slot in range(1, slots + 1):
        decision = agent.decide()
        (state,), (reward,) = worlds[slot > slots // 2].observe(slot, list(decision.arms))
        agent.tell(decision=decision, state=state, reward=reward)


def make_agents(where: dict[str, Any]) -> None:
    problem = rb.Problem.builtin("paper-1")
    first, second = problem.arms
    worse = rb.Arm([[0.1, 0.9], [0.05, 0.95]], second.rewards, name=second.name)
    changed = rb.Problem([first, worse], name="changed")
    with rb.Client(where["url"], token=where["token"]) as client:
        names = [arm.name for arm in problem.arms]
        play(client.create("pumps", arms=names, n_states=2, seed=1), problem, changed, 1400)
        play(client.create("night-shift", arms=names, n_states=2, learner="ts-9", seed=1), problem, problem, 150)


def enter(driver: Chrome, where: dict[str, Any]) -> None:
    driver.get(where["url"])
    driver.find_element("id", "token").send_keys(where["token"])
    driver.find_element("css selector", "button").click()
    wait_for(driver, ".agents td")


def wait_for(driver: Chrome, sign: str) -> None:
    deadline = time.monotonic() + 60
    while not driver.find_elements("css selector", sign):
        if time.monotonic() > deadline:
            raise SystemExit(f"the page never showed {sign}")
        time.sleep(0.1)


def picture(
    driver: Chrome, path: Path, width: int, height: int, *, dark: bool = False, begin: str | None = None
) -> None:
    """Take a picture of a page from its top, or from where something begins."""
    look(driver, width, height, dark=dark)
    script = "arguments[0] ? document.querySelector(arguments[0]).scrollIntoView() : scrollTo(0, 0)"
    driver.execute_script(script, begin)
    time.sleep(1.5)
    driver.save_screenshot(str(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder: Path = parser.parse_args().folder
    if why := missing():
        raise SystemExit(why)
    folder.mkdir(parents=True, exist_ok=True)
    with served() as where, browser() as driver:
        make_agents(where)
        look(driver, 1200)
        enter(driver, where)
        picture(driver, folder / "live-agents.png", 1200, 330)
        driver.get(f"{where['url']}/#/agent/lms-suburban-l")
        wait_for(driver, ".answer b")
        time.sleep(5)
        picture(driver, folder / "live-agent.png", 1200, 1130)
        picture(driver, folder / "live-phone.png", 400, 860, dark=True)
        look(driver, 1200)
        driver.get(f"{where['url']}/#/agent/pumps")
        wait_for(driver, ".event-dot")
        wait_for(driver, ".keys li:nth-child(2) [stroke-dasharray]")
        wait_for(driver, ".answer b")
        time.sleep(5)
        element = driver.find_element("xpath", "//section[.//h2[text()='Rewards a slot']]")
        driver.execute_script("arguments[0].id = 'rewards'", element)
        picture(driver, folder / "live-change.png", 1200, 850, begin="#rewards")
        driver.execute_script(
            "arguments[0].id = 'what-if'", driver.find_element("css selector", ".sliders").find_element("xpath", "./..")
        )
        picture(driver, folder / "live-what-if.png", 1200, 620, begin="#what-if")
        driver.get(REPORT.as_uri())
        picture(driver, folder / "report.png", 1200, 800, begin="#figure-a")
        picture(driver, folder / "report-phone.png", 400, 860, dark=True, begin="#figure-a")


if __name__ == "__main__":
    main()
