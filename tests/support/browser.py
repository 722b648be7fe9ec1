"""A real browser for tests of the page: Debian's chromium without a window."""

import shutil

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

SWITCHES = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


def chromium(width: int = 1280, height: int = 900) -> webdriver.Chrome:
    """A browser, or a test that is skipped where there is none."""
    program, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if program is None or driver is None:
        pytest.skip("there is no chromium with chromedriver: apt-get install chromium chromium-driver")
    options = Options()
    options.binary_location = program
    for switch in (*SWITCHES, f"--window-size={width},{height}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    resize(browser, width, height)
    return browser


def resize(browser: webdriver.Chrome, width: int, height: int, *, dark: bool = False) -> None:
    """Give the page a size, and light or dark colours."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


class Reader:
    """What a person does on the page.

    Args:
        browser: The browser.
        address: The page's address.
    """

    def __init__(self, browser: webdriver.Chrome, address: str):
        self.browser = browser
        browser.get_log("browser")
        browser.get(address)
        self.wait("return !!window.page && page.pictures.has('posterior')")

    def js(self, script: str, *arguments: object):
        """What a script in the page returns."""
        return self.browser.execute_script(script, *arguments)

    def wait(self, script: str, seconds: float = 60, *arguments: object) -> None:
        """Wait until a script returns something true."""
        WebDriverWait(self.browser, seconds, poll_frequency=0.05).until(lambda _: self.js(script, *arguments))

    def find(self, selector: str) -> WebElement:
        return self.browser.find_element("css selector", selector)

    def click_at(self, x: float, y: float) -> None:
        """Click on the figure; x and y are shares of its width and height."""
        self.actions(x, y).click().perform()
        self.settle()

    def drag(self, selector: str, dx: int, dy: int) -> None:
        """Drag an element by some pixels."""
        held = ActionChains(self.browser, duration=50).click_and_hold(self.find(selector))
        held.move_by_offset(dx // 2, dy // 2).move_by_offset(dx - dx // 2, dy - dy // 2).release().perform()
        self.settle()

    def actions(self, x: float, y: float) -> ActionChains:
        figure = self.find("svg.plot[tabindex], canvas.map")
        size = figure.size
        offset = round((x - 0.5) * size["width"]), round((y - 0.5) * size["height"])
        return ActionChains(self.browser, duration=50).move_to_element_with_offset(figure, *offset)

    def settle(self) -> None:
        """Wait until nothing is asked any more."""
        self.wait("return page.backend.busy === 0 && page.backend.waiting.size === 0")

    def points(self) -> list[dict]:
        return self.js("return page.state.points")

    def picture(self, of: str = "posterior") -> dict:
        return self.js(f"return page.pictures.get('{of}')")

    def complaints(self) -> list[dict]:
        """Errors and warnings of the console since the page was opened."""
        return [entry for entry in self.browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
