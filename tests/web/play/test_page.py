"""A real browser on the page: points are added, dragged and typed, every control is moved, a table becomes a report."""

import re
import time

import pytest
from playwright import sync_api as playwright

from browser import executable

pytestmark = [pytest.mark.skipif(executable() is None, reason="needs chromium"), pytest.mark.unchecked]
OVERFLOW = "document.scrollingElement.scrollWidth - document.documentElement.clientWidth"
WHOLE = "performance.getEntriesByName('redraw').filter(e => !e.detail.moving).length"
# Controls that are seen, and have no name for who does not see them.
NAMELESS = """[...document.querySelectorAll('button, input, select, summary, a, [role=button]')]
  .filter(e => e.checkVisibility() && !(e.ariaLabel || e.labels?.length || e.textContent.trim())).map(e => e.outerHTML)"""
# Elements with text that overlap another one's text, in the same box.
CLIPPED = """[...document.querySelectorAll('button, label, legend, h1, h2, h3, dt, dd, li, p')]
  .filter(e => e.checkVisibility() && !e.closest('.unseen, .scroll') && e.scrollWidth > e.clientWidth + 2 && e.clientWidth > 0
    && getComputedStyle(e).display !== 'inline').map(e => e.outerHTML.slice(0, 120))"""
GROUND = "getComputedStyle(document.body).backgroundColor"
MANY_CHANGES = """() => {
  const slider = [...document.querySelectorAll('#controls input[type=range]')].find(e => e.labels[0].textContent === 'area');
  for (let i = 0; i <= 20; i += 1) {
    slider.value = Number(slider.min) + i / 20 * (slider.max - slider.min);
    slider.dispatchEvent(new Event('input', {bubbles: true}));
  }
}"""
TWICE = "[...document.querySelectorAll('[id]')].map(e => e.id).filter((id, i, all) => all.indexOf(id) !== i)"


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable(), args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium, served):
    """Opens the page at a width; at the end of the test it must have complained of nothing."""
    contexts, complaints, tables = [], [], set()

    def opened(width=1280, dark=False, **options):
        scheme = "dark" if dark else "light"
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message) or dialog.dismiss())
        page.on("request", lambda sent: None if sent.url.startswith((served.address, "blob:")) else complaints.append(sent.url))
        page.on("request", lambda sent: tables.update(re.findall(r"/api/tables/([^/]+)", sent.url)))
        page.goto(f"{served.address}/#{served.key}")
        page.wait_for_selector("#facts dd")
        return page

    yield opened
    for context in contexts:
        context.close()
    # Else their processes go on to import what a fit needs, beside the next tests.
    for known in tables:
        served.ask("DELETE", f"/api/tables/{known}")
    assert complaints == []


def until(page, expression, wanted, seconds=20):
    """Wait until an expression of the page is as wanted; Playwright's own way evaluates text, which the page forbids."""
    end = time.monotonic() + seconds
    while not wanted(found := page.evaluate(expression)):
        assert time.monotonic() < end, f"{expression} stayed {found!r}"
        page.wait_for_timeout(20)


def drawn(page, action):
    """Do something, and wait until a whole fit has been drawn after it."""
    before = page.evaluate(WHOLE)
    found = action()
    until(page, WHOLE, lambda count: count > before)
    return found


def place(page, x, y):
    """Where in the window a point of the plane is."""
    box = page.locator("#plot").bounding_box()
    a, b, c, d = -7, 7, -6, 6.5
    return (
        box["x"] + 40 + (x - a) / (b - a) * (box["width"] - 52),
        box["y"] + 10 + (d - y) / (d - c) * (box["height"] - 36),
    )


def test_points_are_added_dragged_moved_by_keys_typed_and_deleted(visit):
    page = visit()
    points = page.locator(".point")
    assert points.count() == 40
    drawn(page, lambda: page.mouse.click(*place(page, 0, 3)))
    assert points.count() == 41
    assert points.last.get_attribute("aria-label") == "Point 41: x 0, y 3"
    mean = page.locator("path.mean").get_attribute("d")

    def drag():
        page.mouse.move(*place(page, 0, 3))
        page.mouse.down()
        for step in range(1, 9):
            page.mouse.move(*place(page, 0.1 * step, 3 - 0.4 * step))
            time.sleep(0.03)
        page.mouse.up()

    drawn(page, drag)
    assert points.last.get_attribute("aria-label").startswith("Point 41: x 0.8")
    assert page.locator("path.mean").get_attribute("d") != mean
    assert page.evaluate("performance.getEntriesByName('redraw').some(e => e.detail.moving)")
    # By keys: the point that was dragged has the focus.
    assert page.evaluate("document.activeElement === document.querySelector('.points').lastElementChild")
    before = points.last.get_attribute("aria-label")
    drawn(page, lambda: page.keyboard.press("ArrowUp"))
    assert points.last.get_attribute("aria-label") != before
    until(page, "document.getElementById('live').textContent", re.compile(r"Point 41 moved to x 0\.8.*Noise").match)
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Point 40")
    drawn(page, lambda: page.keyboard.press("Delete"))
    assert points.count() == 40
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Point 40")
    # As a table.
    page.get_by_text("The points as a table").click()
    typed = page.get_by_label("y of point 1", exact=True)
    drawn(page, lambda: (typed.fill("2.5"), typed.press("Enter")))
    assert points.first.get_attribute("aria-label").endswith("y 2.5")
    drawn(page, lambda: page.get_by_label("Delete point 2", exact=True).click())
    assert points.count() == 39
    drawn(page, lambda: page.get_by_role("button", name="Add a point").click())
    assert points.count() == 40
    drawn(page, lambda: page.get_by_role("button", name="Delete point", exact=True).click())
    page.get_by_role("button", name="Clear").click()
    page.get_by_text("Add points at 3 or more different places; there are 0.").wait_for()


def test_every_control_changes_the_picture_and_a_click_takes_it_back(visit):
    page = visit()
    # Few points first: what a choice changes is seen as well, and each fit is short.
    presets = page.locator("#presets button").all()
    drawn(page, presets[-1].click)

    def curves():
        return [page.locator(f"path.{name}").get_attribute("d") for name in ("mean", "of-f", "of-y", "share")]

    usual = curves()
    for name in ("network", "boosted trees", "straight line"):
        drawn(page, lambda name=name: page.get_by_label(name).check(force=True))
        page.wait_for_selector("#busy:not(.on)", state="attached")
        assert curves() != usual, name
    drawn(page, lambda: page.get_by_label("Gaussian process").check(force=True))
    assert curves() == usual
    for name, others in {
        "Kernel": ("matern52", "matern32", "rq"),
        "Covariance": ("zero", "box"),
        "Likelihood": ("student-t",),
    }.items():
        for other in others:
            drawn(page, lambda name=name, other=other: page.get_by_label(name, exact=True).select_option(other))
            assert curves() != usual, other
        drawn(page, lambda name=name: page.get_by_label(name, exact=True).select_option(index=0))
        assert curves() == usual
    for name in ("lengthscale", "weight", "num_inducing"):
        drawn(page, lambda name=name: page.locator(f"#{name}").press("Home"))
        assert curves() != usual, name
        assert page.locator(f"#{name}-value").text_content()
        drawn(page, lambda name=name: page.locator(f"#{name}-auto").click())
        assert curves() == usual
    page.get_by_label("Covariance", exact=True).select_option("titsias")
    assert page.locator("#weight").is_disabled()
    for button in presets[:-1]:
        drawn(page, button.click)
        assert button.get_attribute("aria-pressed") == "true"
    page.get_by_label("Likelihood", exact=True).select_option("log-normal")
    page.locator("#sentence").get_by_text("positive").wait_for()


def test_the_picture_and_the_python_are_handed_out(visit, tmp_path):
    page = visit()
    with page.expect_download() as loading:
        page.get_by_role("button", name="Picture").click()
    loading.value.save_as(tmp_path / "play.png")
    from PIL import Image

    picture = Image.open(tmp_path / "play.png")
    assert picture.width == 2 * page.locator("#plot").bounding_box()["width"]
    assert len(picture.convert("RGB").getcolors(1 << 20)) > 100
    page.get_by_role("button", name="Python").click()
    until(page, "document.getElementById('code-text').textContent", bool)
    shown = page.locator("#code-text").text_content()
    compile(shown, "play.py", "exec")
    with page.expect_download() as loading:
        page.get_by_role("button", name="Save as play.py").click()
    loading.value.save_as(tmp_path / "play.py")
    assert (tmp_path / "play.py").read_text() == shown
    page.keyboard.press("Escape")
    assert not page.locator("#code").is_visible()


def test_nothing_overlaps_and_everything_has_a_name(visit):
    page = visit()
    for width, dark in ((1280, False), (390, True), (320, False)):
        page.set_viewport_size({"width": width, "height": 844})
        page.emulate_media(color_scheme="dark" if dark else "light", reduced_motion="reduce")
        for tab in ("Your table", "Points"):
            page.get_by_role("tab", name=tab).click()
            assert page.evaluate(OVERFLOW) == 0
            assert page.evaluate(NAMELESS) == []
            assert page.evaluate(CLIPPED) == []
            assert page.evaluate(TWICE) == []
        assert page.evaluate(GROUND) == ("rgb(16, 24, 31)" if dark else "rgb(244, 246, 248)")
    assert page.evaluate("getComputedStyle(document.querySelector('button')).transitionDuration") == "0s"
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(GROUND) == "rgb(16, 24, 31)"
    page.reload()
    page.wait_for_selector("#facts dd")
    # The key is not left in the address, and what was chosen stays.
    assert "#" not in page.url
    assert page.evaluate(GROUND) == "rgb(16, 24, 31)"


def test_without_its_key_the_page_says_where_it_is(chromium, served):
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{served.address}/")
    page.get_by_text("Open the page with the address that `gwi play` printed").wait_for()
    context.close()


def reasons_follow_the_controls(page):
    """Bars of each column; asked for once the controls rest; only those of the newest row are shown."""
    reasons, is_there = page.locator("#reasons"), "#reasons[aria-busy=false]"
    page.wait_for_selector(f"{is_there} li")
    spoken = page.locator("#reasons .unseen").all_text_contents()
    assert re.fullmatch(r"16 usual rows: have \d+\s% of the variance", spoken[0])
    assert {said.partition(" = ")[0] for said in spoken[1:]} == {"town", SCRIPT, "area", "built"}
    assert all(re.search(r": (adds|takes away) \d+\s(%|times) of the variance", said) for said in spoken[1:])
    shares = [text.replace("−", "-") for text in page.locator("#reasons .share-of").all_text_contents()]
    assert sum(float(text.split()[0]) for text in shares) == pytest.approx(100, abs=3)
    assert page.locator("#reasons .surer .part").count() == sum(text.startswith("-") for text in shares)
    # Many changes, one question; while it is under way the prediction goes on.
    held = []
    page.route("**/explain", lambda route: held.append(route))

    def asked():
        # Its request is handed over between two words with the browser.
        while not held:
            page.wait_for_timeout(20)

    page.evaluate(MANY_CHANGES)
    asked()
    before = page.locator("#answer").text_content()
    page.get_by_label("area", exact=True).press("Home")
    until(page, "document.getElementById('answer').textContent", lambda text: text != before)
    assert reasons.get_attribute("aria-busy") == "true"
    assert len(held) == 1
    held.pop().fulfill(json={"refused": "This is of a row that is no longer there."})
    asked()
    assert "no longer there" not in reasons.text_content()
    held.pop().fulfill(json={"refused": f"The model cannot say: {SCRIPT}"})
    page.wait_for_selector(f"{is_there} .refused")
    assert reasons.text_content() == f"The model cannot say: {SCRIPT}"
    page.unroute("**/explain")
    page.get_by_label("area", exact=True).press("End")
    page.wait_for_selector(f"{is_there} li")
    assert not page.locator("#reasons .refused").count()


SCRIPT = '<img src=x onerror=alert(1)>"><script>alert(2)</script>'


def test_a_table_becomes_a_report_and_its_sliders_move_the_prediction(visit, houses, tmp_path):
    page = visit()
    page.get_by_role("tab", name="Your table").click()
    # First one that is none, with a name that would do something elsewhere.
    page.set_input_files("#file", {"name": "<b>x.csv", "mimeType": "text/csv", "buffer": b"PK\x03\x04 no table"})
    page.get_by_text("_b_x.csv is a spreadsheet or a zip archive; export the table as CSV or Parquet.").wait_for()
    # Dropped, as by a hand; one column is called like a script.
    text = houses.read_text().replace("rooms", '"' + SCRIPT.replace('"', '""') + '"', 1)
    page.evaluate(
        """text => {
          const data = new DataTransfer();
          data.items.add(new File([text], "houses.csv", {type: "text/csv"}));
          document.getElementById("drop").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true}));
        }""",
        text,
    )
    page.get_by_role("heading", name="houses.csv").wait_for()
    assert page.locator("#target option").all_text_contents()[1].startswith(SCRIPT)
    assert page.locator("#refused").is_hidden()
    page.get_by_label("Target, the column to predict").fill("pri")
    assert page.locator("#target option").count() == 1
    page.locator("#time").press("End")
    page.get_by_role("button", name="Fit", exact=True).click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Fit", exact=True).wait_for()
    page.locator("#time").press("Home")
    page.get_by_role("button", name="Fit", exact=True).click()
    page.wait_for_selector("#stage:not(:empty)")
    page.get_by_role("heading", name="Prediction of price").wait_for(timeout=60_000)
    page.wait_for_selector("#nearest tbody tr")
    assert page.locator("#scores .tile").count() == 4
    assert page.locator("#nearest tbody tr").count() == 5
    assert page.evaluate(OVERFLOW) == 0
    assert page.evaluate(NAMELESS) == []
    before = page.locator("#answer").text_content()
    page.get_by_label("area", exact=True).press("End")
    until(page, "document.getElementById('answer').textContent", lambda text: text != before)
    reasons_follow_the_controls(page)
    page.get_by_role("button", name="Set the controls to row").first.click()
    page.get_by_role("button", name="Report", exact=True).click()
    report = page.frame_locator("#report")
    report.locator("h1").wait_for()
    assert report.locator("svg").count() >= 3
    assert "price" in report.locator("body").text_content()
    with page.expect_download() as loading:
        page.get_by_role("button", name="Save the model").click()
    loading.value.save_as(tmp_path / "model.gwi")
    import gwi

    assert gwi.load(tmp_path / "model.gwi").task == "regression"
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(OVERFLOW) == 0


def test_columns_beyond_the_first_are_found_by_search(visit):
    rows = [",".join([f"column {i}" for i in range(200)])]
    rows += [",".join(str((i * j * 7919) % 101) for i in range(1, 201)) for j in range(1, 9)]
    page = visit(390)
    page.get_by_role("tab", name="Your table").click()
    page.set_input_files("#file", {"name": "wide.csv", "mimeType": "text/csv", "buffer": "\n".join(rows).encode()})
    page.get_by_text("149 columns more; search for them.").wait_for()
    assert page.locator("#target").input_value() == "199"
    page.get_by_label("Target, the column to predict").fill("column 123")
    assert page.locator("#target").input_value() == "123"
    assert page.locator("#target option").count() == 1
    assert page.evaluate(OVERFLOW) == 0
