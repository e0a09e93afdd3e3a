"""The live page and the report in a real browser: one browser and one service for all tests of this file."""

import json
import time
from urllib.parse import urlsplit

import httpx
import pytest
from benchmarks.browsing import browser, look, missing
from benchmarks.reproduction_page import REPORT

from tests.service.clients import Process

pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=missing() or "")]

SOON = 60
"""Seconds after which something that is awaited will not come, kernels that are compiled first included."""


def wait_for_slots(process):
    """Wait until the demo moves, which takes long where kernels are still to be compiled."""
    headers, deadline = {"authorization": f"Bearer {process.token}"}, time.monotonic() + 180
    with httpx.Client(base_url=process.url, headers=headers, timeout=60) as client:
        while client.get("/agents/paper-1").json()["slots"] < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Process(tmp_path_factory.mktemp("page") / "page.db", "--demo", "paper-1", "--speed", "20") as process:
        wait_for_slots(process)
        yield process
        # With streams open and the processes that think: it ends in order, and has had nothing to complain of.
        assert process.stop() == (0, "")


@pytest.fixture(scope="module")
def driver(service):
    with browser() as opened:
        look(opened, 1400)
        yield opened


@pytest.fixture(scope="module")
def page(driver, service):
    """A browser that is logged in, by keyboard."""
    from selenium.webdriver.common.keys import Keys

    driver.get(service.url)
    assert urlsplit(driver.current_url).path == "/login"
    driver.switch_to.active_element.send_keys(service.token, Keys.ENTER)
    until(driver, lambda: driver.find_elements("css selector", "[data-number=slots]"))
    return driver


@pytest.fixture(scope="module")
def api(service):
    with httpx.Client(base_url=service.url, headers={"authorization": f"Bearer {service.token}"}, timeout=30) as client:
        yield client


def until(driver, found, seconds=SOON):
    """What is found, as soon as it is; elements that are replaced meanwhile are looked for again."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    wait = WebDriverWait(driver, seconds, poll_frequency=0.02, ignored_exceptions=[StaleElementReferenceException])
    return wait.until(lambda _: found())


def one(driver, selector):
    return driver.find_element("css selector", selector)


def card(driver, title):
    return driver.find_element("xpath", f"//section[.//h2[text()='{title}']]")


def show(driver, service, name="paper-1"):
    """Go to an agent, and wait until all of it is there."""
    driver.get(f"{service.url}/#/agent/{name}")
    until(driver, lambda: one(driver, "h1").text == name)


def overflow(driver):
    """By how many pixels the page is wider than its window."""
    return driver.execute_script("return document.documentElement.scrollWidth - innerWidth")


def background(driver):
    return driver.execute_script("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")


def test_a_wrong_token_is_told_so(driver, service):
    driver.get(f"{service.url}/login")
    one(driver, "#token").send_keys("rb-wrong")
    one(driver, "button").click()
    until(driver, lambda: "not known" in one(driver, "[role=alert]").text)
    assert not driver.get_cookies()
    # The browser itself notes the refusal; what comes after must be clean.
    driver.get_log("browser")


def test_the_slot_counter_moves(page):
    before = one(page, "[data-number=slots]").text
    until(page, lambda: one(page, "[data-number=slots]").text != before)
    assert one(page, "#connection").text == "live"


def test_the_cookie_cannot_be_read(page):
    assert page.execute_script("return document.cookie") == ""
    (cookie,) = page.get_cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"


def test_an_agent_whose_arms_react(page, service, api):
    """Both chains are drawn, and a pull without an answer is in the belief and in the index."""
    arms = [{"name": "x", "reacts": True, "passive_rewards": [0.5, 0.25]}, {"name": "y", "reacts": True}]
    made = api.post("/agents", json={"name": "reacting", "arms": arms, "learner": "round-robin"})
    assert made.status_code == 201, made.text
    for number in range(24):
        asked = api.post("/agents/reacting/ask", json={"request": str(number)}).json()
        seen = {"lost": True} if number > 21 else {"state": number // 3 % 2, "reward": 1.0}
        told = {"decision": asked["decision"]} | ({"pulled": False} if number == 4 else seen)
        assert api.post("/agents/reacting/tell", json=told).status_code == 200
    show(page, service, "reacting")
    until(page, lambda: "x, pulled state 0" in card(page, "Chains learned").text)
    assert "x, at rest state 0" in card(page, "Chains learned").text
    until(page, lambda: "no answer" in card(page, "Why this arm").text)
    until(page, lambda: "pays" in card(page, "What it believes now").text)
    assert api.delete("/agents/reacting").status_code == 200
    show(page, service)


def test_beliefs_sum_to_one(page, service):
    show(page, service)
    belief = card(page, "What it believes now")
    until(page, lambda: belief.find_elements("css selector", "svg rect"))
    belief.find_element("css selector", "summary").click()
    cells = "[...row.cells].map(cell => cell.textContent)"
    script = f"return [...arguments[0].querySelectorAll('tbody tr')].map(row => {cells})"

    def seen():
        """The table, once every arm has been seen."""
        rows = page.execute_script(script, belief)
        return rows and all("–" not in row for row in rows) and rows

    rows = until(page, seen)
    assert [row[0] for row in rows] == ["arm 1", "arm 2"]
    for row in rows:
        assert sum(map(float, row[3:5])) == pytest.approx(1, abs=1e-5)


def test_what_is_told_appears_within_a_second(page, service, api):
    assert api.post("/agents", json={"name": "told", "arms": ["x", "y"], "learner": "round-robin"}).status_code == 201
    show(page, service, "told")
    until(page, lambda: one(page, "#connection").text == "live")
    waits = []
    for n in range(3):
        decision = api.post("/agents/told/ask", json={"request": str(n)}).json()
        slot = decision["slot"]
        until(page, lambda: page.find_elements("css selector", f".open-cell[data-slot='{slot}']"))  # noqa: B023
        told = api.post("/agents/told/tell", json={"decision": decision["decision"], "state": 1, "reward": 0.0})
        assert told.status_code == 200
        begin = time.monotonic()
        until(page, lambda: page.find_elements("css selector", f"[data-slot='{slot}'][data-state='1']"))  # noqa: B023
        waits.append(time.monotonic() - begin)
    # One of three: the others may have met a machine that was busy with other tests.
    assert min(waits) < 1


def test_a_slider_changes_the_optimum(page, service):
    from selenium.webdriver.common.keys import Keys

    show(page, service)
    gain = until(
        page, lambda: [e.get_attribute("data-gain") for e in page.find_elements("css selector", "[data-gain]")]
    )[0]
    until(page, lambda: not page.find_elements("css selector", ".busy"))
    pays = page.find_element("xpath", "//label[contains(., 'pays in state 1')]/input")
    pays.send_keys(*[Keys.ARROW_RIGHT] * 30)
    until(page, lambda: float(one(page, "[data-gain]").get_attribute("data-gain")) > float(gain) + 0.01)
    assert page.find_elements("css selector", ".sliders + .answer b")


def test_what_is_shown_can_be_taken_away(page, service, tmp_path):
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    show(page, service)
    rewards = card(page, "Rewards a slot")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", rewards)
    until(page, lambda: rewards.find_elements("css selector", ".stroke"))
    # All in one moment, as the agent goes on and the three are compared.
    page.execute_script("arguments[0].querySelectorAll('.tools button').forEach(tool => tool.click())", rewards)
    kept = until(
        page,
        lambda: len(found := [p for p in tmp_path.iterdir() if p.suffix in (".csv", ".json", ".png")]) == 3 and found,
    )
    by_kind = {path.suffix: path.read_bytes() for path in kept}
    assert by_kind[".png"].startswith(b"\x89PNG")
    lines = by_kind[".csv"].decode().splitlines()
    rows = json.loads(by_kind[".json"])["rows"]
    assert lines[0] == '"from slot","to slot","rewards","answers","lost"'
    assert len(lines) - 1 == len(rows) > 10


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1400])
def test_layout(page, service, width, dark):
    try:
        look(page, width, dark=dark)
        for place, title, sign in (("agents", "Agents", ".agents td"), ("agent/paper-1", "paper-1", ".strip")):
            page.get(f"{service.url}/#/{place}")
            until(page, lambda: one(page, "h1").text == title)  # noqa: B023
            until(page, lambda: page.find_elements("css selector", sign))  # noqa: B023
            assert overflow(page) <= 0
            assert (sum(background(page)) < 150) is dark
        sizes = page.execute_script(
            "return [...document.querySelectorAll('svg text')].map(t => parseFloat(getComputedStyle(t).fontSize))"
        )
        assert min(sizes) >= 11
    finally:
        look(page, 1400)


def test_by_keyboard_alone(page, service):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys):
        ActionChains(page).send_keys(*keys).perform()

    page.get(f"{service.url}/#/agents")
    until(page, lambda: page.find_elements("css selector", "[data-agent=paper-1]"))
    for _ in range(12):
        press(Keys.TAB)
        if page.switch_to.active_element.text == "paper-1":
            break
    press(Keys.ENTER)
    until(page, lambda: one(page, "h1").text == "paper-1")
    until(page, lambda: page.find_elements("css selector", "[data-state]"))
    for _ in range(20):
        press(Keys.TAB)
        if page.switch_to.active_element.tag_name == "svg":
            break
    press(Keys.ARROW_LEFT)
    tip = until(page, lambda: [t.text for t in page.find_elements("css selector", ".tip") if t.is_displayed()])
    assert tip[0].startswith("arm ")
    press(Keys.TAB, Keys.ENTER)
    until(page, lambda: page.find_elements("css selector", "details[open] tbody tr"))


def test_pictures_have_words(page, service):
    """A screen reader is told what each picture is, and has a table behind it."""
    show(page, service)
    until(page, lambda: page.find_elements("css selector", "[data-gain]"))
    found = page.execute_script(
        "return [...document.querySelectorAll('main .picture > svg')].map(svg => [svg.getAttribute('role'),"
        "svg.getAttribute('aria-label'), !!svg.closest('section').querySelector('details table')])"
    )
    assert len(found) == 8
    for role, label, has_table in found:
        assert role == "img"
        assert ":" in label
        assert has_table


def test_nothing_went_wrong_and_nobody_else_was_asked(page, service):
    logged = [entry for entry in page.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert logged == []
    asked = {
        urlsplit(message["params"]["request"]["url"])
        for entry in page.get_log("performance")
        if (message := json.loads(entry["message"])["message"])["method"] == "Network.requestWillBeSent"
    }
    hosts = {url.netloc for url in asked if url.scheme in ("http", "https", "ws", "wss")}
    assert hosts == {urlsplit(service.url).netloc}
    assert {"/", "/login", "/assets/main.js", "/page/live", "/page/thoughts", "/page/what-if"} <= {
        u.path for u in asked
    }


def test_logging_out(page, service):
    page.get(f"{service.url}/#/agents")
    until(page, lambda: one(page, "h1").text == "Agents")
    one(page, ".bar button").click()
    until(page, lambda: page.find_elements("css selector", "#token"))
    assert not page.get_cookies()
    page.get(f"{service.url}/")
    assert urlsplit(page.current_url).path == "/login"


class TestReport:
    @pytest.fixture
    def report(self, driver):
        look(driver, 1400)
        driver.get(REPORT.as_uri())
        return driver

    def test_lines_can_be_switched_off(self, report):
        def ticks():
            return [t.text for t in report.find_elements("css selector", "#figure-a .chart:nth-of-type(1) .ticks text")]

        before = ticks()
        one(report, "#figure-a input[data-label='colored-UCRL2']").click()
        hidden = report.find_elements("css selector", "#figure-a .trace.off")
        assert {line.get_attribute("data-label") for line in hidden} == {"colored-UCRL2"}
        assert len(hidden) == 3
        assert ticks() != before  # what is left has the room
        assert not report.find_elements("css selector", "#figure-b .trace.off")
        one(report, ".everywhere input[data-label='TS-9']").click()
        for name in ("figure-a", "figure-b", "appendix-b"):
            assert report.find_elements("css selector", f"#{name} .trace.off[data-label='TS-9']")
        one(report, "#figure-a input[data-label='colored-UCRL2']").click()
        one(report, ".everywhere input[data-label='TS-9']").click()
        assert not report.find_elements("css selector", ".trace.off")
        assert ticks() == before

    def test_a_line_tells_its_numbers(self, report):
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        chart = one(report, "#figure-a .chart")
        ActionChains(report).scroll_to_element(chart).move_to_element_with_offset(chart, 40, 0).perform()
        told = one(report, "#figure-a .tip").text
        assert told.splitlines()[0] in {"Restless-UCB", "colored-UCRL2", "TS-9", "TS-4"}
        assert "T = " in told
        chart.send_keys(Keys.ARROW_RIGHT * 12)
        label, numbers = one(report, "#figure-a .tip").text.splitlines()
        cells = [
            row.text for row in report.find_elements("css selector", "#figure-a tbody tr") if row.text.startswith(label)
        ]
        assert numbers.partition(": ")[2] in cells[0]

    @pytest.mark.parametrize("dark", [False, True])
    @pytest.mark.parametrize("width", [400, 1400])
    def test_layout(self, report, width, dark):
        look(report, width, dark=dark)
        assert overflow(report) <= 0
        assert (sum(background(report)) < 150) is dark
        tops = report.execute_script(
            "return [...document.querySelectorAll('#figure-a .panel')].map(p => p.getBoundingClientRect().top | 0)"
        )
        assert len(set(tops)) == (3 if width == 400 else 1)
        height = report.execute_script(
            "const t = document.querySelector('#figure-a .tick'); return t.getBoundingClientRect().height"
        )
        assert height > 9
        report.execute_script("document.getElementById('inside').scrollIntoView()")
        assert report.execute_script("return document.querySelector('.contents').getBoundingClientRect().top") == 0
        until(report, lambda: one(report, ".contents [aria-current]").text == "Inside the learners")

    def test_it_can_be_printed(self, report):
        import base64

        look(report, 1400, dark=True)
        printed = base64.b64decode(report.execute_cdp_cmd("Page.printToPDF", {})["data"])
        assert printed.startswith(b"%PDF")
        report.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        assert sum(background(report)) == 3 * 255
        assert not one(report, ".contents").is_displayed()
        report.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})

    def test_it_asks_nobody(self, report):
        report.get_log("performance")
        report.refresh()
        assert [entry for entry in report.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
        for entry in report.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                assert message["params"]["request"]["url"] == REPORT.as_uri()
